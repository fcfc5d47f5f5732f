#include "net/control/control_channel.h"

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

namespace pdjob::net {
namespace {

using std::chrono::milliseconds;

struct ServerSide final : ControlServer::Handler {
  std::function<void(const std::string&, Message)> then = [](const std::string&, const Message&) {};
  void on_message(const std::string& peer, Message message) override {
    then(peer, std::move(message));
  }
};

struct ClientSide final : ControlClient::Handler {
  std::function<void(Message)> then = [](const Message&) {};
  void on_message(Message message) override { then(std::move(message)); }
};

class ControlChannel : public testing::Test {
 protected:
  ControlChannel() { serve(1); }

  // In place of the one before, at its address.
  void serve(uint64_t launcher) {
    const uint16_t port = server_ == nullptr ? uint16_t{0} : port_of(server_->endpoint());
    server_.reset();
    auto opened = ControlServer::open(
        loop_, server_side_,
        {.host = "127.0.0.1", .port = port, .keys = server_keys_, .launcher = launcher});
    PDJOB_CHECK(opened.has_value());
    server_ = std::move(*opened);
  }

  ControlAddress address(const CurveKeys& keys) const {
    return {server_->endpoint(), server_->public_key(), keys};
  }

  std::unique_ptr<ControlClient> connect(ClientSide& side, const CurveKeys& keys) {
    auto opened = ControlClient::open(loop_, side, address(keys), "client");
    PDJOB_CHECK(opened.has_value());
    return std::move(*opened);
  }

  // Returns true if stop() came before the deadline.
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
  ServerSide server_side_;
  ClientSide client_side_;
  std::unique_ptr<ControlServer> server_;
};

TEST_F(ControlChannel, MessagesGoBothWaysUnderTheAllowedName) {
  const CurveKeys keys = make_curve_keys();
  server_->allow("decode-3", keys.public_key);
  server_side_.then = [&](const std::string& peer, const Message& message) {
    EXPECT_EQ(peer, "decode-3");  // The authenticated name, not the message's claim.
    EXPECT_EQ(std::get<HeartbeatSent>(message).name, "liar");
    server_->send(peer, Drain{.deadline_ms = 5});
  };
  client_side_.then = [&](const Message& message) {
    EXPECT_EQ(std::get<Drain>(message).deadline_ms, 5U);
    loop_.stop();
  };
  const auto client = connect(client_side_, keys);
  client->send(HeartbeatSent{.name = "liar"});
  EXPECT_TRUE(run(milliseconds(10000)));
}

TEST_F(ControlChannel, AnUnknownKeyIsRefused) {
  const CurveKeys keys = make_curve_keys();
  server_->allow("decode-0", keys.public_key);
  std::vector<std::string> heard;
  server_side_.then = [&](const std::string& peer, const Message&) {
    heard.push_back(peer);
    loop_.stop();
  };
  const auto stranger = connect(client_side_, make_curve_keys());
  stranger->send(RegisterAsked{});
  EXPECT_FALSE(run(milliseconds(300)));
  const auto member = connect(client_side_, keys);
  member->send(RegisterAsked{});
  EXPECT_TRUE(run(milliseconds(10000))) << "the stranger had the same time, and more";
  EXPECT_EQ(heard, (std::vector<std::string>{"decode-0"}));
}

TEST_F(ControlChannel, AWrongServerKeyIsRefusedByTheClient) {
  const CurveKeys keys = make_curve_keys();
  server_->allow("decode-0", keys.public_key);
  server_side_.then = [&](const std::string&, const Message&) { loop_.stop(); };
  ControlAddress wrong = address(keys);
  wrong.server_public_key = make_curve_keys().public_key;
  const auto client = ControlClient::open(loop_, client_side_, wrong, "decode-0");
  ASSERT_TRUE(client);
  (*client)->send(RegisterAsked{});
  EXPECT_FALSE(run(milliseconds(300)));
}

TEST_F(ControlChannel, AnOlderIncarnationIsNotHeardAnyMore) {
  const CurveKeys old_keys = make_curve_keys();
  const CurveKeys new_keys = make_curve_keys();
  std::vector<uint64_t> heard;
  server_->allow("prefill-0", old_keys.public_key);
  server_side_.then = [&](const std::string&, const Message& message) {
    heard.push_back(std::get<HeartbeatSent>(message).sequence);
    loop_.stop();
  };
  const auto old_client = connect(client_side_, old_keys);
  old_client->send(HeartbeatSent{.sequence = 1});
  ASSERT_TRUE(run(milliseconds(10000)));

  server_->allow("prefill-0", new_keys.public_key);
  old_client->send(HeartbeatSent{.sequence = 2});
  EXPECT_FALSE(run(milliseconds(200)));
  const auto new_client = connect(client_side_, new_keys);
  new_client->send(HeartbeatSent{.sequence = 3});
  EXPECT_TRUE(run(milliseconds(10000)));
  EXPECT_EQ(heard, (std::vector<uint64_t>{1, 3}));
}

// A process outlives launchers: it finds the next one, and obeys none that is earlier.
TEST_F(ControlChannel, ALaunchersOrdersAreDroppedOnceALaterOneWasHeard) {
  const CurveKeys keys = make_curve_keys();
  std::vector<uint64_t> obeyed;
  client_side_.then = [&](const Message& message) {
    obeyed.push_back(std::get<Drain>(message).deadline_ms);
    loop_.stop();
  };
  uint64_t launcher = 1;
  server_side_.then = [&](const std::string& peer, const Message&) {
    server_->send(peer, Drain{.deadline_ms = launcher});
  };
  server_->allow("decode-0", keys.public_key);
  const auto client = connect(client_side_, keys);
  for (const uint64_t next : {1U, 3U, 2U, 3U}) {
    launcher = next;
    serve(launcher);
    server_->allow("decode-0", keys.public_key);
    client->send(RegisterAsked{});
    EXPECT_EQ(run(launcher == 2 ? milliseconds(1500) : milliseconds(10000)), launcher != 2);
  }
  EXPECT_EQ(obeyed, (std::vector<uint64_t>{1, 3, 3}));
}

TEST_F(ControlChannel, ABurstArrivesWholeAndInOrder) {
  constexpr uint64_t kMessages = 3000;  // Enough for several turns; below the queue's bound.
  const CurveKeys keys = make_curve_keys();
  server_->allow("router-0", keys.public_key);
  uint64_t next = 0;
  server_side_.then = [&](const std::string& peer, const Message& message) {
    EXPECT_EQ(std::get<HeartbeatSent>(message).sequence, next);
    ++next;
    server_->send(peer, Acknowledge{});
  };
  uint64_t acknowledged = 0;
  client_side_.then = [&](const Message&) {
    if (++acknowledged == kMessages) {
      loop_.stop();
    }
  };
  const auto client = connect(client_side_, keys);
  for (uint64_t i = 0; i < kMessages; ++i) {
    client->send(HeartbeatSent{.sequence = i});
  }
  EXPECT_TRUE(run(milliseconds(20000)));
  EXPECT_EQ(next, kMessages);
}

TEST_F(ControlChannel, AMessageToNobodyIsDroppedAndOthersAreHeard) {
  const CurveKeys keys = make_curve_keys();
  server_->allow("prefill-0", make_curve_keys().public_key);
  server_->allow("decode-0", keys.public_key);
  server_side_.then = [&](const std::string& peer, const Message&) {
    server_->send("nobody", RegisterAsked{});
    server_->send("prefill-0", RegisterAsked{});  // It never connected.
    server_->send(peer, Acknowledge{});
  };
  std::vector<Message> heard;
  client_side_.then = [&](Message message) {
    heard.push_back(std::move(message));
    loop_.stop();
  };
  const auto client = connect(client_side_, keys);
  client->send(RegisterAsked{});
  ASSERT_TRUE(run(milliseconds(10000)));
  ASSERT_EQ(heard.size(), 1U);
  EXPECT_TRUE(std::holds_alternative<Acknowledge>(heard.front()));
}

TEST(ControlClient, BadKeysAreAnErrorNotACrash) {
  EventLoop loop;
  ClientSide side;
  const auto client =
      ControlClient::open(loop, side, {"tcp://127.0.0.1:1", "short", {"p", "s"}}, "x");
  EXPECT_EQ(client.error().code, ErrorCode::kInvalidArgument);
}

}  // namespace
}  // namespace pdjob::net
