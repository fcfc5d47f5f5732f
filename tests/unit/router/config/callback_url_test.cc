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

// Returns "receiver host:port path", or the error that the client gets.
std::string target(std::string_view url, std::initializer_list<const char*> allowed) {
  const auto found = find_callback_target(url, receivers(allowed));
  return found ? std::to_string(found->receiver) + ' ' + found->to.to_string() + ' ' + found->path
               : found.error().message;
}

TEST(CallbackUrl, IsOfTheFirstReceiverThatIsListed) {
  EXPECT_EQ(target("http://a:9/done?x=1", {"b", "a:8", "a:9", "a"}), "2 a:9 /done?x=1");
  EXPECT_EQ(target("http://a:7", {"b", "a:8", "a:9", "a"}), "3 a:7 /");
  EXPECT_EQ(target("http://A.example?x", {"a.EXAMPLE:80"}), "0 a.example:80 /?x");
  EXPECT_EQ(target("http://[::1]:9/d", {"[::1]:9"}), "0 [::1]:9 /d");
  EXPECT_EQ(target("http://[::1]:9/d", {"[::1]"}), "0 [::1]:9 /d");
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

TEST(CallbackUrl, IsPlainHttpWithoutTricks) {
  const std::string long_path = "http://a/" + std::string(kCallbackUrlBytesMax, 'x');
  for (const std::string& url : {std::string("https://a/"),    std::string("a/"),
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
  for (const char* text : {"", "http://a", "a/", "a:", "a:0", "a:x", "::1", "*", "10.0.0.0/8"}) {
    EXPECT_FALSE(parse_callback_receiver(text)) << text;
  }
}

}  // namespace
}  // namespace pdjob::router
