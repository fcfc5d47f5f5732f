#include "router/config/callback_url.h"

#include <gtest/gtest.h>

namespace pdjob::router {
namespace {

std::vector<CallbackReceiver> receivers(std::initializer_list<const char*> texts) {
  std::vector<CallbackReceiver> all;
  for (const char* text : texts) {
    all.push_back(*parse_callback_receiver(text));
  }
  return all;
}

// Returns "receiver url", or the error that the client gets.
std::string target(std::string_view url, std::initializer_list<const char*> allowed) {
  const auto found = find_callback_target(url, receivers(allowed));
  return found ? std::to_string(found->receiver) + ' ' + found->url.to_string()
               : found.error().message;
}

TEST(CallbackUrl, IsOfTheFirstReceiverThatIsListed) {
  EXPECT_EQ(target("http://a:9/done?x=1", {"b", "a:8", "a:9", "a"}), "2 http://a:9/done?x=1");
  EXPECT_EQ(target("http://a:7", {"b", "a:8", "a:9", "a"}), "3 http://a:7/");
  EXPECT_EQ(target("http://A.example?x", {"a.EXAMPLE:80"}), "0 http://a.example:80/?x");
  EXPECT_EQ(target("http://[::1]:9/d", {"[::1]:9"}), "0 http://[::1]:9/d");
  EXPECT_EQ(target("http://[::1]:9/d", {"[::1]"}), "0 http://[::1]:9/d");
}

TEST(CallbackUrl, MayBeHttps) {
  EXPECT_EQ(target("https://a/done", {"a"}), "0 https://a:443/done");
  EXPECT_EQ(target("https://a:9/done", {"a:9"}), "0 https://a:9/done");
  EXPECT_EQ(target("https://[::1]/d", {"[::1]:443"}), "0 https://[::1]:443/d");
}

TEST(CallbackUrl, MayNameAnAddressOfAListedBlock) {
  EXPECT_EQ(target("http://10.1.2.3:9/d", {"10.0.0.0/8"}), "0 http://10.1.2.3:9/d");
  EXPECT_EQ(target("http://11.1.2.3:9/d", {"10.0.0.0/8"}).substr(0, 10), "11.1.2.3:9");
  EXPECT_NE(target("http://a/", {"0.0.0.0/0"}).find("may not be called"), std::string::npos);
}

TEST(CallbackUrl, MayNameNobodyElse) {
  const std::string told = " may not be called: router.async.callbacks.allowed does not list it";
  EXPECT_EQ(target("http://a:9/", {"a:8", "b"}), "a:9" + told);
  EXPECT_EQ(target("http://a/", {"a:8"}), "a:80" + told);
  EXPECT_EQ(target("http://xa:8/", {"a:8"}), "xa:8" + told);
  EXPECT_EQ(target("http://a.b:8/", {"a:8"}), "a.b:8" + told);
  EXPECT_EQ(target("http://127.1:8/", {"127.0.0.1:8"}), "127.1:8" + told);
  EXPECT_EQ(target("http://a:8/", {}),
            "Nobody is called back here: router.async.callbacks.allowed is empty");
}

TEST(CallbackUrl, IsHttpWithoutTricks) {
  const std::string long_path = "http://a/" + std::string(kCallbackUrlBytesMax, 'x');
  for (const std::string& url : {std::string("ftp://a/"),      std::string("a/"),
                                 std::string("HTTP://a/"),     std::string("/"),
                                 std::string("http://"),       std::string("http:///x"),
                                 std::string("http://?x"),     std::string("http://u@a/"),
                                 std::string("http://u:p@a/"), std::string("http://b#@a/"),
                                 std::string("http://a/#x"),   std::string("http://a\\b/"),
                                 std::string("http://a:0/"),   std::string("http://a:65536/"),
                                 std::string("http://a:/"),    std::string("http://a/ x"),
                                 std::string("http://a/\tx"),  std::string("http://a/\r\nX: y"),
                                 std::string("http://a/\xe4"), std::string("http://a /"),
                                 std::string("http://%61/"),   long_path}) {
    EXPECT_TRUE(target(url, {"a", "b", "u"}).starts_with("A callback is http://host:port/path"))
        << url;
  }
}

TEST(CallbackReceiver, IsAHostAtOnePortOrAtAny) {
  EXPECT_EQ(parse_callback_receiver("a")->port, 0);
  EXPECT_EQ(parse_callback_receiver("a:80")->port, 80);
  EXPECT_EQ(parse_callback_receiver("a:080")->port, 80);
  EXPECT_EQ(parse_callback_receiver("[::80]")->port, 0);
  EXPECT_EQ(parse_callback_receiver("[::80]")->host, "::80");
  for (const char* text :
       {"", "http://a", "a/", "a:", "a:0", "a:x", "::1", "*", "10.0.0.1/8", "a/8"}) {
    EXPECT_FALSE(parse_callback_receiver(text)) << text;
  }
}

bool may(std::string_view host, std::string_view address,
         std::initializer_list<const char*> allowed) {
  return may_connect(host, *net::parse_ip(address), receivers(allowed));
}

// A name belongs to whoever answers for it, and may lead to the router's own machine.
TEST(CallbackReceiver, ANameLeadsToPublicAddressesOrToListedOnes) {
  EXPECT_TRUE(may("a", "93.184.216.34", {"a"}));
  for (const char* inside : {"127.0.0.1", "10.0.0.1", "169.254.169.254", "::1", "fd00::1"}) {
    EXPECT_FALSE(may("a", inside, {"a"})) << inside;
  }
  EXPECT_TRUE(may("a", "10.9.9.9", {"a", "10.0.0.0/8"}));
  EXPECT_TRUE(may("a", "10.0.0.1", {"a", "10.0.0.1:80"}));
  EXPECT_FALSE(may("a", "10.0.0.2", {"a", "10.0.0.1:80"}));
}

TEST(CallbackReceiver, AnAddressThatIsListedLeadsToItself) {
  EXPECT_TRUE(may("127.0.0.1", "127.0.0.1", {"127.0.0.1:9"}));
  EXPECT_TRUE(may("::1", "::1", {"[::1]:9"}));
}

TEST(CallbackReceiver, LocalhostIsThisMachine) {
  EXPECT_TRUE(may("localhost", "127.0.0.1", {"localhost"}));
  EXPECT_TRUE(may("localhost", "::1", {"localhost"}));
  EXPECT_FALSE(may("localhost", "10.0.0.1", {"localhost"}));
}

}  // namespace
}  // namespace pdjob::router
