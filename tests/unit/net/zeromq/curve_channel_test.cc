#include "net/zeromq/curve_channel.h"

#include <functional>
#include <memory>
#include <string>
#include <utility>

#include <gtest/gtest.h>

#include "common/check.h"

namespace pdjob::net {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

const std::string kSecret(64, 'a');

struct ServerSide final : CurveServer::Handler {
  void on_bytes(const std::string& key, const std::string& from,
                const std::string& bytes) override {
    last_key = key;
    route = from;
    then(bytes);
  }
  void on_refused(const std::string& why, uint64_t /*times*/) override {
    ++refusals;
    last_refusal = why;
    then("");
  }
  std::function<void(const std::string&)> then = [](const std::string&) {};
  std::string last_key;
  std::string route;
  std::string last_refusal;
  int refusals = 0;
};

struct ClientSide final : CurveClient::Handler {
  void on_bytes(const std::string& bytes) override { then(bytes); }
  void on_connected() override { then("connected"); }
  void on_disconnected() override { then("disconnected"); }
  void on_refused() override { then("refused"); }
  std::function<void(const std::string&)> then = [](const std::string&) {};
};

class CurveChannelTest : public testing::Test {
 protected:
  CurveChannelTest() { open(0); }

  void open(uint16_t port) {
    auto opened = CurveServer::open(
        loop_, server_side_,
        {.host = "127.0.0.1",
         .port = port,
         .keys = server_keys_,
         .allows = [this](const std::string& key) { return key == client_keys_.public_key; }});
    PDJOB_CHECK(opened.has_value(), opened.error().message);
    server_ = std::move(*opened);
  }
  std::unique_ptr<CurveClient> connect(ClientSide& side, const std::string& server_key,
                                       const CurveKeys& keys) {
    auto opened = CurveClient::open(loop_, side,
                                    {.endpoint = server_->endpoint(),
                                     .server_public_key = server_key,
                                     .keys = keys,
                                     .queue = CurveClient::Options::Queue::kOnlyConnected});
    PDJOB_CHECK(opened.has_value());
    return std::move(*opened);
  }
  // Returns true if the loop was stopped before the deadline.
  bool run(Duration at_most) {
    bool late = false;
    const TimerId timer = loop_.call_at(loop_.now() + at_most, [&] {
      late = true;
      loop_.stop();
    });
    loop_.run();
    loop_.cancel(timer);
    return !late;
  }

  EventLoop loop_;
  const CurveKeys server_keys_ = make_curve_keys();
  const CurveKeys client_keys_ = curve_keys_of(kSecret);
  ServerSide server_side_;
  ClientSide client_side_;
  std::unique_ptr<CurveServer> server_;
};

TEST_F(CurveChannelTest, DerivedKeysAreTheSameForTheSameSecret) {
  EXPECT_EQ(curve_keys_of(kSecret).public_key, client_keys_.public_key);
  EXPECT_NE(curve_keys_of(std::string(64, 'b')).public_key, client_keys_.public_key);
}

TEST_F(CurveChannelTest, BytesGoBothWaysOnceBothHaveProvedThemselves) {
  std::string got;
  const auto client = connect(client_side_, server_keys_.public_key, client_keys_);
  EXPECT_EQ(client->send("too early"), CurveSent::kFull);
  client_side_.then = [&](const std::string& what) {
    if (what == "connected") {
      EXPECT_EQ(client->send("ping"), CurveSent::kQueued);
    } else {
      got = what;
      loop_.stop();
    }
  };
  server_side_.then = [&](const std::string& bytes) {
    server_->send(server_side_.route, bytes + "!");
  };
  ASSERT_TRUE(run(seconds(20)));
  EXPECT_EQ(got, "ping!");
  EXPECT_EQ(server_side_.last_key, client_keys_.public_key);
}

TEST_F(CurveChannelTest, ManyTriesWithAWrongKeyAreToldOnce) {
  const auto stranger = connect(client_side_, server_keys_.public_key, make_curve_keys());
  server_side_.then = [this](const std::string&) { loop_.stop(); };
  ASSERT_TRUE(run(seconds(20)));
  EXPECT_FALSE(run(seconds(2))) << "it was told again";
  EXPECT_EQ(server_side_.refusals, 1);
  EXPECT_NE(server_side_.last_refusal.find("unknown key"), std::string::npos);
}

TEST_F(CurveChannelTest, AClientThatExpectsAnotherServerIsRefusedOnBothEnds) {
  bool told = false;
  const auto client = connect(client_side_, make_curve_keys().public_key, client_keys_);
  client_side_.then = [&](const std::string& what) {
    told = told || what == "refused";
    EXPECT_NE(what, "connected");
  };
  server_side_.then = [this](const std::string&) { loop_.stop(); };
  ASSERT_TRUE(run(seconds(20)));
  EXPECT_NE(server_side_.last_refusal.find("does not prove"), std::string::npos);
}

TEST_F(CurveChannelTest, AClientLearnsThatTheConnectionEnded) {
  std::string last;
  const auto client = connect(client_side_, server_keys_.public_key, client_keys_);
  client_side_.then = [&](const std::string& what) {
    last = what;
    loop_.stop();
  };
  ASSERT_TRUE(run(seconds(20)));
  EXPECT_EQ(last, "connected");
  server_.reset();
  ASSERT_TRUE(run(seconds(20)));
  EXPECT_EQ(last, "disconnected");
}

}  // namespace
}  // namespace pdjob::net
