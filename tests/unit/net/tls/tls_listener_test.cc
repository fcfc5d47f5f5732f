#include "net/tls/tls_listener.h"

#include <filesystem>

#include <gtest/gtest.h>

#include "tests/unit/net/loop_test_support.h"
#include "tests/unit/net/tls/tls_client.h"

namespace pdjob::net {
namespace {

// Takes what arrives, and echoes nothing.
class TlsListenerTest : public testing::Test, FdHandler {
 protected:
  void listen(const TlsListener::Options& options = {}) {
    listener = std::make_unique<TlsListener>(loop, *loop.listen({}), *tls, options);
    ASSERT_TRUE(listener->watch(*this));
  }
  void on_ready(uint32_t /*epoll_events*/) override {
    for (auto stream = listener->accept(); stream && *stream; stream = listener->accept()) {
      streams.push_back(std::move(*stream));
    }
  }
  RawClient connect() { return RawClient(loop, listener->port()); }
  // A client that does its handshake; it returns who answered.
  std::string shake_hands() {
    RawClient raw = connect();
    TlsClient client;
    EXPECT_TRUE(run_until(loop, [&] {
      const bool done = client.shake_hands();
      const std::string bytes = client.take();
      ::send(raw.fd(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
      raw.received();
      client.feed(raw.take());
      return done;
    }));
    const std::string name = client.server_name();
    return name;
  }

  EventLoop loop;
  const CertificateFiles files = make_certificate(testing::TempDir(), {.name = "listener"});
  std::unique_ptr<ServerTls> tls = *ServerTls::open(files);
  std::unique_ptr<TlsListener> listener;
  std::vector<std::unique_ptr<Stream>> streams;
};

TEST_F(TlsListenerTest, GivesAStreamOnceItsHandshakeIsDone) {
  listen();
  RawClient silent = connect();
  EXPECT_EQ(shake_hands(), "listener");
  EXPECT_TRUE(run_until(loop, [&] { return streams.size() == 1; }));
}

TEST_F(TlsListenerTest, SlowHandshakesEndAtTheirDeadline) {
  listen({.handshake_timeout = std::chrono::milliseconds(300)});
  RawClient silent = connect();
  RawClient slow = connect();
  TlsClient hello;
  hello.shake_hands();
  const std::string bytes = hello.take();
  size_t sent = 0;
  // A byte now and then does not move the deadline.
  EXPECT_TRUE(run_until(loop, [&] {
    if (sent + 1 < bytes.size()) {
      sent += ::send(slow.fd(), bytes.data() + sent, 1, MSG_NOSIGNAL) == 1 ? 1 : 0;
    }
    return slow.ended() && silent.ended();
  }));
  EXPECT_EQ(tls->counts().timed_out, 2U);
  EXPECT_TRUE(streams.empty());
}

TEST_F(TlsListenerTest, TooManyHandshakesCostTheOldest) {
  listen({.handshakes_max = 3});
  std::vector<RawClient> silent;
  for (int i = 0; i < 5; ++i) {
    silent.push_back(connect());
    run_until(loop, [&] { return tls->counts().evicted + 3 > static_cast<uint64_t>(i); });
  }
  EXPECT_TRUE(silent[0].wait_for_end());
  EXPECT_TRUE(silent[1].wait_for_end());
  EXPECT_FALSE(silent[4].ended());
  EXPECT_EQ(tls->counts().evicted, 2U);
  EXPECT_EQ(shake_hands(), "listener") << "an honest client still comes in";
}

TEST_F(TlsListenerTest, PlainHttpIsToldWhatToDo) {
  listen();
  for (const char* method : {"GET", "POST", "DELETE", "OPTIONS"}) {
    RawClient client = connect();
    client.send(std::string(method) + " /v1/models HTTP/1.1\r\nHost: h\r\n\r\n");
    EXPECT_TRUE(client.wait_for("this port speaks HTTPS")) << method;
    EXPECT_TRUE(client.received().starts_with("HTTP/1.1 400 ")) << client.received();
    EXPECT_TRUE(client.wait_for_end());
    const std::string text = client.received();
    const std::string body = text.substr(text.find("\r\n\r\n") + 4);
    EXPECT_NE(text.find("Content-Length: " + std::to_string(body.size())), std::string::npos);
  }
  EXPECT_EQ(tls->counts().plain, 4U);
  EXPECT_TRUE(streams.empty());
}

TEST_F(TlsListenerTest, GarbageIsClosed) {
  listen();
  for (const std::string& bytes :
       {std::string("\0\0\0\0", 4), std::string("\x16\x03\x01\xff\xff\x01", 6),
        std::string("\x16\x03\x01\0\x05hello", 10), std::string(100'000, '\x80')}) {
    RawClient client = connect();
    client.send(bytes);
    EXPECT_TRUE(client.wait_for_end());
  }
  EXPECT_EQ(tls->counts().failed, 4U);
}

TEST_F(TlsListenerTest, NewConnectionsGetTheNewCertificate) {
  listen();
  EXPECT_EQ(shake_hands(), "listener");
  EXPECT_TRUE(run_until(loop, [&] { return streams.size() == 1; }));
  const CertificateFiles second = make_certificate(testing::TempDir(), {.name = "renewed"});
  std::filesystem::rename(second.certificate, files.certificate);
  std::filesystem::rename(second.key, files.key);
  ASSERT_EQ(tls->reload(0), ServerTls::Look::kTaken);
  EXPECT_EQ(shake_hands(), "renewed");
  EXPECT_TRUE(run_until(loop, [&] { return streams.size() == 2; }));
}

}  // namespace
}  // namespace pdjob::net
