#include "net/loop/tcp_relay.h"

#include "common/random.h"
#include "tests/unit/net/loop_test_support.h"

namespace pdjob::net {
namespace {

using std::chrono::milliseconds;

// Accepts connections. The test decides what it sends.
class RawServer {
 public:
  explicit RawServer(EventLoop& loop) : loop_(loop), listener_(*listen_on("127.0.0.1", 0)) {}

  SocketAddress address() const {
    return resolve("127.0.0.1", local_port(listener_.get()), HostForm::kNumeric)->front();
  }
  Fd accept() {
    Fd fd;
    EXPECT_TRUE(run_until(loop_, [&] {
      fd = Fd(accept4(listener_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
      return fd.valid();
    }));
    return fd;
  }
  bool nobody_comes() {
    run_for(loop_, milliseconds(50));
    return ::accept(listener_.get(), nullptr, nullptr) < 0;
  }

 private:
  EventLoop& loop_;
  const Fd listener_;
};

class TcpRelayTest : public testing::Test {
 protected:
  void open(TcpRelayOptions options = {}) {
    auto opened = TcpRelay::open(loop_, options);
    ASSERT_TRUE(opened.has_value());
    relay_ = std::move(*opened);
  }
  // Returns up to `count` bytes that arrived in time; nullopt at the end of the stream.
  std::optional<std::string> read(const Fd& fd, size_t count) {
    std::string text;
    bool ended = false;
    EXPECT_TRUE(run_until(loop_, [&] {
      char buffer[65536];
      ssize_t got = 0;
      while (text.size() < count && (got = recv(fd.get(), buffer, sizeof buffer, 0)) > 0) {
        text.append(buffer, static_cast<size_t>(got));
      }
      ended = text.size() < count && got == 0;
      return ended || text.size() >= count;
    }));
    return ended ? std::nullopt : std::optional(text);
  }

  EventLoop loop_;
  std::unique_ptr<TcpRelay> relay_;
};

TEST_F(TcpRelayTest, PassesBytesBothWaysAndTheEndOfEachDirection) {
  open();
  RawServer server(loop_);
  relay_->pass_to(server.address());
  RawClient client(loop_, relay_->port());
  client.send("ask");
  const Fd served = server.accept();
  EXPECT_EQ(read(served, 3), "ask");
  client.close_sending();
  EXPECT_EQ(read(served, 1), std::nullopt);
  ASSERT_EQ(send(served.get(), "answer", 6, 0), 6);
  EXPECT_TRUE(client.wait_for("answer"));
  EXPECT_FALSE(client.ended());
  shutdown(served.get(), SHUT_WR);
  EXPECT_TRUE(client.wait_for_end());
  EXPECT_TRUE(run_until(loop_, [&] { return relay_->connections() == 0; }));
}

TEST_F(TcpRelayTest, AtItsLimitTheConnectionThatStoodStillLongestGivesWay) {
  open({.connections_max = 2});
  RawServer server(loop_);
  relay_->pass_to(server.address());
  RawClient busy(loop_, relay_->port());
  const Fd served = server.accept();
  RawClient silent(loop_, relay_->port());
  const Fd unused = server.accept();
  busy.send("ask");
  EXPECT_EQ(read(served, 3), "ask");
  RawClient late(loop_, relay_->port());
  late.send("too");
  EXPECT_EQ(read(server.accept(), 3), "too");
  EXPECT_TRUE(silent.wait_for_end());
  EXPECT_FALSE(busy.ended());
}

TEST_F(TcpRelayTest, WaitsForAServer) {
  open();
  RawServer server(loop_);
  RawClient client(loop_, relay_->port());
  client.send("early");
  EXPECT_TRUE(server.nobody_comes());
  relay_->pass_to(server.address());
  EXPECT_EQ(read(server.accept(), 5), "early");
}

TEST_F(TcpRelayTest, WaitsWhileTheServerRefuses) {
  open();
  SocketAddress nobody;
  {
    const RawServer gone(loop_);
    nobody = gone.address();
  }
  relay_->pass_to(nobody);
  RawClient client(loop_, relay_->port());
  client.send("early");
  run_for(loop_, milliseconds(50));
  EXPECT_FALSE(client.ended());
  RawServer server(loop_);
  relay_->pass_to(server.address());
  EXPECT_EQ(read(server.accept(), 5), "early");
}

TEST_F(TcpRelayTest, WaitsNoLongerThanItsTime) {
  open({.wait = milliseconds(100)});
  RawClient client(loop_, relay_->port());
  EXPECT_TRUE(client.wait_for_end());
}

TEST_F(TcpRelayTest, NewConnectionsGoToTheNewServerAndOldOnesStay) {
  open();
  RawServer old_server(loop_);
  RawServer new_server(loop_);
  relay_->pass_to(old_server.address());
  RawClient first(loop_, relay_->port());
  const Fd at_old = old_server.accept();
  relay_->pass_to(new_server.address());
  RawClient second(loop_, relay_->port());
  const Fd at_new = new_server.accept();
  first.send("one");
  second.send("two");
  EXPECT_EQ(read(at_old, 3), "one");
  EXPECT_EQ(read(at_new, 3), "two");
}

TEST_F(TcpRelayTest, ASlowReaderStopsTheOtherSideAndLosesNothing) {
  open();
  RawServer server(loop_);
  relay_->pass_to(server.address());
  RawClient client(loop_, relay_->port());
  const Fd served = server.accept();
  Random random(7);
  std::string sent;
  // Sends until the kernel's buffers and the relay's buffer are full.
  for (int idle = 0; idle < 20;) {
    std::string piece(8192, '\0');
    for (char& byte : piece) {
      byte = static_cast<char>(random.next());
    }
    const ssize_t count = send(served.get(), piece.data(), piece.size(), MSG_NOSIGNAL);
    if (count > 0) {
      sent.append(piece, 0, static_cast<size_t>(count));
      idle = 0;
    } else {
      run_for(loop_, milliseconds(5));
      ++idle;
    }
    ASSERT_LT(sent.size(), size_t{64} << 20);
  }
  ASSERT_TRUE(client.wait_for_bytes(sent.size()));
  EXPECT_TRUE(client.received() == sent);
}

TEST_F(TcpRelayTest, AResetOfOneSideClosesTheOther) {
  open();
  RawServer server(loop_);
  relay_->pass_to(server.address());
  RawClient client(loop_, relay_->port());
  {
    const Fd served = server.accept();
    client.send("there");
    EXPECT_EQ(read(served, 5), "there");
    const linger at_once{.l_onoff = 1, .l_linger = 0};
    setsockopt(served.get(), SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
  }
  EXPECT_TRUE(client.wait_for_end());
}

TEST_F(TcpRelayTest, AcceptsNoMoreOnceToldButGoesOnWithWhatIsThere) {
  open();
  RawServer server(loop_);
  relay_->pass_to(server.address());
  RawClient client(loop_, relay_->port());
  const Fd served = server.accept();
  relay_->stop_accepting();
  client.send("still here");
  EXPECT_EQ(read(served, 10), "still here");
}

}  // namespace
}  // namespace pdjob::net
