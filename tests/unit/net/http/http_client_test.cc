#include "net/http/http_client.h"

#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "common/limits.h"
#include "tests/unit/net/loop_test_support.h"

namespace pdjob::net {
namespace {

// Records the events of one call.
class Recorder final : public HttpCallHandler {
 public:
  int status = 0;
  BodyFraming framing = BodyFraming::kNone;
  std::string interim;  // Their status and "Link".
  std::string head;
  std::string body;
  bool ended = false;
  std::optional<Error> error;
  std::function<void(CallId)> when_head;
  std::function<void(CallId)> when_body;
  std::function<void(CallId)> when_ended;
  std::function<void()> when_error;

  bool over() const { return ended || error.has_value(); }

  void on_interim(CallId /*id*/, const HttpReplyHead& reply) override {
    interim += std::to_string(reply.status) + std::string(reply.header("link")) + " ";
  }
  void on_head(CallId id, const HttpReplyHead& reply) override {
    EXPECT_FALSE(over());
    status = reply.status;
    framing = reply.framing;
    head = reply.raw;
    if (when_head) {
      when_head(id);
    }
  }
  void on_body(CallId id, std::string_view raw) override {
    EXPECT_FALSE(over());
    body += raw;
    if (when_body) {
      when_body(id);
    }
  }
  void on_end(CallId id) override {
    EXPECT_FALSE(over());
    ended = true;
    if (when_ended) {
      when_ended(id);
    }
  }
  void on_error(CallId, const Error& failure) override {
    EXPECT_FALSE(over());
    error = failure;
    if (when_error) {
      when_error();
    }
  }
};

// A server whose every byte is scripted. It accepts, reads, and sends what the test says.
class RawServer {
 public:
  explicit RawServer(EventLoop& loop) : loop_(loop) {
    auto listener = listen_on("127.0.0.1", 0);
    PDJOB_CHECK(listener.has_value());
    listener_ = std::move(*listener);
  }
  HttpAddress address() const { return {"127.0.0.1", local_port(listener_.get())}; }

  bool accept() {
    return run_until(loop_, [&] {
      Fd fd(accept4(listener_.get(), nullptr, nullptr, SOCK_NONBLOCK));
      if (fd.valid()) {
        peers_.push_back(std::move(fd));
        received_.emplace_back();
        return true;
      }
      return false;
    });
  }
  bool somebody_waits() {
    Fd fd(accept4(listener_.get(), nullptr, nullptr, SOCK_NONBLOCK));
    return fd.valid();
  }
  bool wait_for(size_t peer, std::string_view text) {
    return run_until(loop_, [&] {
      char buffer[65536];
      const ssize_t count = recv(peers_[peer].get(), buffer, sizeof buffer, 0);
      if (count > 0) {
        received_[peer].append(buffer, static_cast<size_t>(count));
      }
      return received_[peer].find(text) != std::string::npos;
    });
  }
  bool wait_for_end(size_t peer) {
    return run_until(loop_, [&] {
      char buffer[65536];
      const ssize_t count = recv(peers_[peer].get(), buffer, sizeof buffer, 0);
      return count == 0 || (count < 0 && errno != EAGAIN);
    });
  }
  std::string take(size_t peer) { return std::exchange(received_[peer], {}); }
  void send(size_t peer, std::string_view bytes) {
    EXPECT_EQ(::send(peers_[peer].get(), bytes.data(), bytes.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(bytes.size()));
  }
  void close(size_t peer) { peers_[peer].reset(); }
  void stop_listening() { listener_.reset(); }
  int fd(size_t peer) const { return peers_[peer].get(); }

 private:
  EventLoop& loop_;
  Fd listener_;
  std::vector<Fd> peers_;
  std::vector<std::string> received_;
};

class HttpClientTest : public testing::Test {
 protected:
  HttpCall get(std::string_view target = "/") {
    return {.to = server.address(), .method = "GET", .target = target};
  }
  bool finished(const Recorder& recorder) {
    return run_until(loop, [&] { return recorder.over(); });
  }
  // Runs a whole GET, which leaves a pooled connection behind.
  void warm_up() {
    Recorder first;
    client->start(get(), first);
    ASSERT_TRUE(server.accept());
    ASSERT_TRUE(server.wait_for(0, "\r\n\r\n"));
    server.take(0);
    server.send(0, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
    ASSERT_TRUE(finished(first));
  }

  EventLoop loop;
  RawServer server{loop};
  std::unique_ptr<HttpClient> client = HttpClient::create(loop);
};

TEST_F(HttpClientTest, SendsARequestAndTakesTheReply) {
  Recorder recorder;
  client->start(
      {.to = server.address(), .target = "/v1/x", .header_lines = "X-A: b\r\n", .body = "{}"},
      recorder);
  ASSERT_TRUE(server.accept());
  ASSERT_TRUE(server.wait_for(0, "{}"));
  EXPECT_EQ(server.take(0), "POST /v1/x HTTP/1.1\r\nHost: " + server.address().to_string() +
                                "\r\nX-A: b\r\nContent-Length: 2\r\n\r\n{}");
  server.send(0, "HTTP/1.1 201 Made\r\nContent-Length: 3\r\n\r\nabc");
  ASSERT_TRUE(finished(recorder));
  EXPECT_TRUE(recorder.ended);
  EXPECT_EQ(recorder.status, 201);
  EXPECT_EQ(recorder.head, "HTTP/1.1 201 Made\r\nContent-Length: 3\r\n\r\n");
  EXPECT_EQ(recorder.body, "abc");
}

struct FramingCase {
  const char* name;
  std::string_view method;
  std::string head;
  std::string body;
  bool closes;
  BodyFraming framing;
};

TEST_F(HttpClientTest, FollowsEachFramingThroughAnySplit) {
  const std::vector<FramingCase> cases = {
      {"length", "GET", "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n", "hello", false,
       BodyFraming::kLength},
      {"chunked", "GET", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
       "2\r\nhe\r\n3;a=b\r\nllo\r\n0\r\nT: t\r\n\r\n", false, BodyFraming::kChunked},
      {"until close", "GET", "HTTP/1.1 200 OK\r\n\r\n", "hello", true, BodyFraming::kUntilClose},
      {"no content", "GET", "HTTP/1.1 204 No Content\r\n\r\n", "", false, BodyFraming::kNone},
      {"not modified", "GET", "HTTP/1.1 304 Not Modified\r\nContent-Length: 9\r\n\r\n", "", false,
       BodyFraming::kNone},
      {"head", "HEAD", "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n", "", false,
       BodyFraming::kNone},
      {"interim", "GET",
       "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\nHTTP/1.1 200 "
       "OK\r\nContent-Length: 1\r\n\r\n",
       "x", false, BodyFraming::kLength},
  };
  size_t peer = 0;
  for (const size_t piece : {1, 3, 1000}) {
    for (const FramingCase& framing : cases) {
      client->forget(server.address());
      Recorder recorder;
      HttpCall call = get();
      call.method = framing.method;
      client->start(std::move(call), recorder);
      ASSERT_TRUE(server.accept());
      ASSERT_TRUE(server.wait_for(peer, "\r\n\r\n"));
      const std::string reply = framing.head + framing.body;
      for (size_t at = 0; at < reply.size(); at += piece) {
        server.send(peer, reply.substr(at, piece));
        run_for(loop, std::chrono::milliseconds(0));
      }
      if (framing.closes) {
        server.close(peer);
      }
      ASSERT_TRUE(finished(recorder)) << framing.name << piece;
      EXPECT_TRUE(recorder.ended) << framing.name
                                  << (recorder.error ? recorder.error->message : "");
      EXPECT_EQ(recorder.body, framing.body) << framing.name;
      EXPECT_EQ(recorder.framing, framing.framing) << framing.name;
      EXPECT_EQ(recorder.interim, std::string(framing.name) == "interim" ? "100 103x " : "");
      ++peer;
    }
  }
}

TEST_F(HttpClientTest, ReusesTheWarmestConnection) {
  warm_up();
  for (int i = 0; i < 3; ++i) {
    Recorder recorder;
    client->start(get("/again"), recorder);
    ASSERT_TRUE(server.wait_for(0, "/again"));
    server.take(0);
    server.send(0, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
    ASSERT_TRUE(finished(recorder));
    EXPECT_EQ(recorder.body, "ok");
  }
  EXPECT_FALSE(server.somebody_waits());
}

TEST_F(HttpClientTest, StartsTheNextCallFromWithinOnEnd) {
  Recorder second;
  Recorder first;
  first.when_ended = [&](CallId) { client->start(get("/second"), second); };
  client->start(get("/first"), first);
  ASSERT_TRUE(server.accept());
  ASSERT_TRUE(server.wait_for(0, "/first"));
  server.send(0, "HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\na");
  ASSERT_TRUE(server.wait_for(0, "/second"));
  server.send(0, "HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nb");
  ASSERT_TRUE(finished(second));
  EXPECT_EQ(second.body, "b");
}

TEST_F(HttpClientTest, ForgetsAPooledConnectionThatThePeerClosed) {
  warm_up();
  server.close(0);
  run_for(loop, std::chrono::milliseconds(20));
  Recorder recorder;
  client->start(get(), recorder);
  ASSERT_TRUE(server.accept());
  ASSERT_TRUE(server.wait_for(1, "\r\n\r\n"));
  server.send(1, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
  ASSERT_TRUE(finished(recorder));
  EXPECT_TRUE(recorder.ended);
}

TEST_F(HttpClientTest, ReplacesAPooledConnectionThatDiesUnderTheRequest) {
  warm_up();
  Recorder recorder;
  // Closes it before the loop notices: the request goes into the closed socket.
  server.close(0);
  client->start({.to = server.address(), .body = "again"}, recorder);
  ASSERT_TRUE(server.accept());
  ASSERT_TRUE(server.wait_for(1, "again"));
  server.send(1, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
  ASSERT_TRUE(finished(recorder));
  EXPECT_TRUE(recorder.ended);
}

TEST_F(HttpClientTest, ReplacesAPooledConnectionOnlyOnce) {
  warm_up();
  Recorder recorder;
  server.close(0);
  client->start(get(), recorder);
  ASSERT_TRUE(server.accept());
  ASSERT_TRUE(server.wait_for(1, "\r\n\r\n"));
  server.close(1);
  ASSERT_TRUE(finished(recorder));
  ASSERT_TRUE(recorder.error.has_value());
  EXPECT_EQ(recorder.error->code, ErrorCode::kUnavailable);
  EXPECT_FALSE(server.somebody_waits());
}

// A process that dies closes its connections one after the other. A call on one that is dead
// already must not look as if it had reached the process.
TEST_F(HttpClientTest, TrustsNoIdleConnectionOfAServerThatBrokeOff) {
  Recorder idle;
  Recorder broken;
  client->start(get("/idle"), idle);
  client->start(get("/broken"), broken);
  ASSERT_TRUE(server.accept());
  ASSERT_TRUE(server.accept());
  ASSERT_TRUE(server.wait_for(0, "\r\n\r\n"));
  ASSERT_TRUE(server.wait_for(1, "\r\n\r\n"));
  const size_t answered = server.take(0).find("/idle") == std::string::npos ? 1 : 0;
  server.send(answered, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
  ASSERT_TRUE(finished(idle));
  server.close(1 - answered);
  ASSERT_TRUE(finished(broken));
  ASSERT_TRUE(broken.error);
  EXPECT_TRUE(server.wait_for_end(answered));
}

// Its request was received, and may be why that process is gone.
TEST_F(HttpClientTest, EndsACallThatConnectsAnewToAProcessThatIsGone) {
  warm_up();
  bool reached = false;
  Recorder recorder;
  recorder.when_error = [&] { reached = client->reached(); };
  client->start({.to = server.address(), .body = "again"}, recorder);
  ASSERT_TRUE(server.wait_for(0, "again"));
  server.close(0);
  // In the turn that reads the end of the first connection, before that of the second is known.
  loop.call_at(loop.now(), [&] {
    EXPECT_FALSE(recorder.over());
    client->end_reconnecting(server.address());
    EXPECT_TRUE(recorder.over());
    loop.stop();
  });
  loop.run();
  ASSERT_TRUE(recorder.error.has_value());
  EXPECT_EQ(recorder.error->code, ErrorCode::kUnavailable);
  EXPECT_TRUE(reached);
}

// A call whose bytes never left is no evidence: whoever started it sends it elsewhere.
TEST_F(HttpClientTest, LeavesACallThatConnectsForTheFirstTimeToItsOwnEnd) {
  Recorder recorder;
  client->start(get(), recorder);
  client->end_reconnecting(server.address());
  EXPECT_FALSE(recorder.over());
  ASSERT_TRUE(server.accept());
  ASSERT_TRUE(server.wait_for(0, "\r\n\r\n"));
  server.send(0, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
  ASSERT_TRUE(finished(recorder));
  EXPECT_TRUE(recorder.ended);
}

TEST_F(HttpClientTest, NeverSendsAgainAfterAReplyByte) {
  warm_up();
  Recorder recorder;
  client->start(get("/once"), recorder);
  ASSERT_TRUE(server.wait_for(0, "/once"));
  server.send(0, "H");
  run_for(loop, std::chrono::milliseconds(20));
  server.close(0);
  ASSERT_TRUE(finished(recorder));
  ASSERT_TRUE(recorder.error.has_value());
  EXPECT_FALSE(server.somebody_waits());
}

TEST_F(HttpClientTest, DropsAnIdleConnectionThatSendsUnasked) {
  warm_up();
  server.send(0, "HTTP/1.1 408 Timeout\r\n\r\n");
  run_for(loop, std::chrono::milliseconds(20));
  Recorder recorder;
  client->start(get(), recorder);
  EXPECT_TRUE(server.accept());
}

TEST_F(HttpClientTest, DropsAnIdleConnectionThatSendsUnaskedWhenItsLastCallWasPaused) {
  Recorder paused;
  paused.when_body = [&](CallId id) { client->pause(id); };
  client->start(get(), paused);
  ASSERT_TRUE(server.accept());
  ASSERT_TRUE(server.wait_for(0, "\r\n\r\n"));
  server.send(0, "HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\na");
  ASSERT_TRUE(finished(paused));
  server.send(0, "HTTP/1.1 408 Timeout\r\n\r\n");
  run_for(loop, std::chrono::milliseconds(20));
  Recorder recorder;
  client->start(get(), recorder);
  EXPECT_TRUE(server.accept());
  EXPECT_EQ(recorder.status, 0) << "that was said to nobody";
}

TEST_F(HttpClientTest, DoesNotReuseAConnectionWithBytesBehindTheReply) {
  Recorder recorder;
  client->start(get(), recorder);
  ASSERT_TRUE(server.accept());
  ASSERT_TRUE(server.wait_for(0, "\r\n\r\n"));
  server.send(0, "HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nabc");
  ASSERT_TRUE(finished(recorder));
  EXPECT_EQ(recorder.body, "a");
  EXPECT_TRUE(server.wait_for_end(0));
}

TEST_F(HttpClientTest, HonoursConnectionClose) {
  Recorder recorder;
  client->start(get(), recorder);
  ASSERT_TRUE(server.accept());
  ASSERT_TRUE(server.wait_for(0, "\r\n\r\n"));
  server.send(0, "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nConnection: close\r\n\r\na");
  ASSERT_TRUE(finished(recorder));
  EXPECT_TRUE(server.wait_for_end(0));
}

TEST_F(HttpClientTest, SaysThatAReplyBrokeOff) {
  for (const std::string_view head :
       {"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nabc",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n"}) {
    RawServer other(loop);
    Recorder recorder;
    client->start({.to = other.address(), .method = "GET"}, recorder);
    ASSERT_TRUE(other.accept());
    ASSERT_TRUE(other.wait_for(0, "\r\n\r\n"));
    other.send(0, head);
    other.close(0);
    ASSERT_TRUE(finished(recorder));
    ASSERT_TRUE(recorder.error.has_value());
    EXPECT_EQ(recorder.error->code, ErrorCode::kUnavailable);
    EXPECT_NE(recorder.body.find("abc"), std::string::npos);
  }
}

TEST_F(HttpClientTest, RefusesWhatIsNotHttp) {
  for (const std::string_view reply :
       {"SSH-2.0-OpenSSH\r\n\r\n", "HTTP/1.1 200 OK\nContent-Length: 0\n\n",
        "HTTP/1.1 2x0 OK\r\n\r\n", "HTTP/1.1 101 Switching Protocols\r\n\r\n", "HTTP/2 200\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n"}) {
    RawServer other(loop);
    Recorder recorder;
    client->start({.to = other.address(), .method = "GET"}, recorder);
    ASSERT_TRUE(other.accept());
    ASSERT_TRUE(other.wait_for(0, "\r\n\r\n"));
    other.send(0, reply);
    ASSERT_TRUE(finished(recorder)) << reply;
    ASSERT_TRUE(recorder.error.has_value()) << reply;
    EXPECT_EQ(recorder.error->code, ErrorCode::kCorrupt) << reply;
    EXPECT_TRUE(other.wait_for_end(0));
  }
}

TEST_F(HttpClientTest, SaysThatNobodyListens) {
  const HttpAddress address = server.address();
  server.stop_listening();
  Recorder recorder;
  client->start({.to = address, .method = "GET"}, recorder);
  EXPECT_FALSE(recorder.over());  // Errors are never reported within start().
  ASSERT_TRUE(finished(recorder));
  ASSERT_TRUE(recorder.error.has_value());
  EXPECT_EQ(recorder.error->code, ErrorCode::kUnavailable);
  EXPECT_NE(recorder.error->message.find(address.to_string()), std::string::npos)
      << recorder.error->message;
}

TEST_F(HttpClientTest, TimesOutWithoutAHead) {
  Recorder recorder;
  HttpCall call = get();
  call.head_timeout = std::chrono::milliseconds(100);
  client->start(std::move(call), recorder);
  ASSERT_TRUE(finished(recorder));
  ASSERT_TRUE(recorder.error.has_value());
  EXPECT_EQ(recorder.error->code, ErrorCode::kTimeout);
  ASSERT_TRUE(server.accept());
  EXPECT_TRUE(server.wait_for_end(0));
}

TEST_F(HttpClientTest, TimesOutBetweenPieces) {
  Recorder recorder;
  HttpCall call = get();
  call.idle_timeout = std::chrono::milliseconds(100);
  client->start(std::move(call), recorder);
  ASSERT_TRUE(server.accept());
  ASSERT_TRUE(server.wait_for(0, "\r\n\r\n"));
  server.send(0, "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nabc");
  ASSERT_TRUE(finished(recorder));
  ASSERT_TRUE(recorder.error.has_value());
  EXPECT_EQ(recorder.error->code, ErrorCode::kTimeout);
}

TEST_F(HttpClientTest, ConnectTimesOutWhenTheBacklogIsFull) {
  // A listener with a full backlog that never accepts leaves further connects unanswered.
  Fd listener(socket(AF_INET, SOCK_STREAM, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  ASSERT_EQ(bind(listener.get(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  ASSERT_EQ(listen(listener.get(), 0), 0);
  const HttpAddress to{"127.0.0.1", local_port(listener.get())};
  std::vector<std::unique_ptr<Recorder>> recorders;
  for (int i = 0; i < 4; ++i) {
    recorders.push_back(std::make_unique<Recorder>());
    client->start({.to = to, .method = "GET", .connect_timeout = std::chrono::milliseconds(200)},
                  *recorders.back());
  }
  ASSERT_TRUE(finished(*recorders.back()));
  ASSERT_TRUE(recorders.back()->error.has_value());
  EXPECT_EQ(recorders.back()->error->code, ErrorCode::kTimeout);
  EXPECT_NE(recorders.back()->error->message.find("connect"), std::string::npos);
}

TEST_F(HttpClientTest, CancelClosesTheConnectionAndSilencesTheCall) {
  Recorder recorder;
  const CallId id = client->start(get(), recorder);
  ASSERT_TRUE(server.accept());
  ASSERT_TRUE(server.wait_for(0, "\r\n\r\n"));
  client->cancel(id);
  EXPECT_TRUE(server.wait_for_end(0));
  EXPECT_FALSE(recorder.over());
  client->cancel(id);
  client->pause(id);
  client->resume(id);
}

TEST_F(HttpClientTest, MayBeCancelledFromEachCallback) {
  for (const bool at_head : {true, false}) {
    RawServer other(loop);
    Recorder recorder;
    (at_head ? recorder.when_head : recorder.when_body) = [&](CallId id) { client->cancel(id); };
    client->start({.to = other.address(), .method = "GET"}, recorder);
    ASSERT_TRUE(other.accept());
    ASSERT_TRUE(other.wait_for(0, "\r\n\r\n"));
    other.send(0, "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabc");
    EXPECT_TRUE(other.wait_for_end(0));
    EXPECT_FALSE(recorder.over());
    EXPECT_EQ(recorder.body, at_head ? "" : "abc");
  }
}

TEST_F(HttpClientTest, PauseHoldsThePeerBack) {
  Recorder recorder;
  recorder.when_head = [&](CallId id) { client->pause(id); };
  HttpCall call = get();
  call.idle_timeout = std::chrono::milliseconds(100);  // The timeout does not run while paused.
  const CallId id = client->start(std::move(call), recorder);
  ASSERT_TRUE(server.accept());
  ASSERT_TRUE(server.wait_for(0, "\r\n\r\n"));
  constexpr size_t kSize = 24 * limits::kMiB;
  server.send(0, "HTTP/1.1 200 OK\r\nContent-Length: " + std::to_string(kSize) + "\r\n\r\n");
  size_t sent = 0;
  const std::string piece(limits::kMiB, 'x');
  const auto push = [&] {
    ssize_t count = 0;
    while (sent < kSize &&
           (count = ::send(server.fd(0), piece.data(), std::min(piece.size(), kSize - sent),
                           MSG_NOSIGNAL)) > 0) {
      sent += static_cast<size_t>(count);
    }
    return sent == kSize;
  };
  EXPECT_FALSE(run_until(loop, push, std::chrono::milliseconds(100)));
  EXPECT_LT(recorder.body.size(), limits::kMiB);
  EXPECT_FALSE(recorder.over());
  client->resume(id);
  ASSERT_TRUE(run_until(loop, push));
  ASSERT_TRUE(finished(recorder));
  EXPECT_EQ(recorder.body.size(), kSize);
  EXPECT_TRUE(recorder.ended);
}

TEST_F(HttpClientTest, SendsALargeBody) {
  LambdaHandler handler;
  auto opened = HttpServer::open(loop, handler, {});
  ASSERT_TRUE(opened.has_value());
  handler.answer = [&](ExchangeId id, HttpRequest& request) {
    (*opened)->reply(id, 200, "text/plain", request.body);
  };
  std::string body(8 * limits::kMiB, 'b');
  Recorder recorder;
  client->start({.to = {"127.0.0.1", (*opened)->port()}, .body = body}, recorder);
  ASSERT_TRUE(finished(recorder));
  EXPECT_TRUE(recorder.body == body);
}

TEST_F(HttpClientTest, HearsARefusalGivenBeforeTheBodyIsSent) {
  LambdaHandler handler;
  auto opened = HttpServer::open(loop, handler, {.body_bytes_max = 10});
  ASSERT_TRUE(opened.has_value());
  Recorder recorder;
  client->start(
      {.to = {"127.0.0.1", (*opened)->port()}, .body = std::string(8 * limits::kMiB, 'b')},
      recorder);
  ASSERT_TRUE(finished(recorder));
  EXPECT_EQ(recorder.status, 413) << (recorder.error ? recorder.error->message : "");
}

TEST_F(HttpClientTest, ResolvesNamesBesideTheLoop) {
  Recorder first;
  Recorder second;
  client->start({.to = {"localhost", server.address().port}, .method = "GET"}, first);
  client->start({.to = {"localhost", server.address().port}, .method = "GET"}, second);
  ASSERT_TRUE(server.accept());
  ASSERT_TRUE(server.accept());
  for (const size_t peer : {0, 1}) {
    ASSERT_TRUE(server.wait_for(peer, "\r\n\r\n"));
    EXPECT_NE(server.take(peer).find("Host: localhost:"), std::string::npos);
    server.send(peer, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
  }
  ASSERT_TRUE(finished(first));
  ASSERT_TRUE(finished(second));
  EXPECT_TRUE(first.ended && second.ended);
}

TEST_F(HttpClientTest, SaysThatANameIsUnknown) {
  Recorder recorder;
  client->start({.to = {"no-such-host.invalid", 80},
                 .method = "GET",
                 .connect_timeout = std::chrono::seconds(15)},
                recorder);
  ASSERT_TRUE(finished(recorder));
  ASSERT_TRUE(recorder.error.has_value());
  EXPECT_NE(recorder.error->message.find("no-such-host.invalid"), std::string::npos);
}

TEST_F(HttpClientTest, MayBeDestroyedWithCallsAlive) {
  Recorder connected;
  Recorder resolving;
  bool fetched = false;
  client->start(get(), connected);
  client->start({.to = {"localhost", server.address().port}, .method = "GET"}, resolving);
  fetch(loop, *client, get(), 100, [&](const Result<HttpReply>&) { fetched = true; });
  ASSERT_TRUE(server.accept());
  client.reset();
  run_for(loop, std::chrono::milliseconds(50));
  EXPECT_FALSE(connected.over());
  EXPECT_FALSE(resolving.over());
  EXPECT_FALSE(fetched);
}

TEST_F(HttpClientTest, FetchCollectsAWholeReply) {
  std::optional<Result<HttpReply>> reply;
  fetch(loop, *client, get(), 100, [&](Result<HttpReply> result) { reply = std::move(result); });
  ASSERT_TRUE(server.accept());
  ASSERT_TRUE(server.wait_for(0, "\r\n\r\n"));
  server.send(
      0, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n1\r\nc\r\n0\r\n\r\n");
  ASSERT_TRUE(run_until(loop, [&] { return reply.has_value(); }));
  ASSERT_TRUE(reply->has_value());
  EXPECT_EQ((*reply)->status, 200);
  EXPECT_EQ((*reply)->body, "abc");
}

TEST_F(HttpClientTest, FetchBoundsTheReply) {
  std::optional<Result<HttpReply>> reply;
  fetch(loop, *client, get(), 2, [&](Result<HttpReply> result) { reply = std::move(result); });
  ASSERT_TRUE(server.accept());
  ASSERT_TRUE(server.wait_for(0, "\r\n\r\n"));
  server.send(0, "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabc");
  ASSERT_TRUE(run_until(loop, [&] { return reply.has_value(); }));
  EXPECT_FALSE(reply->has_value());
}

TEST_F(HttpClientTest, FetchEndsAReplyThatComesTooSlowlyEvenIfItNeverStops) {
  std::optional<Result<HttpReply>> reply;
  HttpCall call = get();
  call.connect_timeout = call.head_timeout = call.idle_timeout = std::chrono::milliseconds(200);
  fetch(loop, *client, std::move(call), 1 << 20,
        [&](Result<HttpReply> result) { reply = std::move(result); });
  ASSERT_TRUE(server.accept());
  ASSERT_TRUE(server.wait_for(0, "\r\n\r\n"));
  server.send(0, "HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n");
  std::function<void()> drip = [&] {
    if (!reply) {
      server.send(0, "x");
      loop.call_at(loop.now() + std::chrono::milliseconds(20), drip);
    }
  };
  loop.call_at(loop.now(), drip);
  ASSERT_TRUE(run_until(loop, [&] { return reply.has_value(); }));
  ASSERT_FALSE(reply->has_value());
  EXPECT_EQ(reply->error().code, ErrorCode::kTimeout);
}

TEST_F(HttpClientTest, MakesAThousandCallsAtOnce) {
  LambdaHandler handler;
  auto opened = HttpServer::open(loop, handler, {});
  ASSERT_TRUE(opened.has_value());
  handler.answer = [&](ExchangeId id, HttpRequest& request) {
    (*opened)->begin(id, 200, "text/plain");
    (*opened)->write(id, request.path);
    (*opened)->end(id);
  };
  std::vector<std::unique_ptr<Recorder>> recorders;
  for (int round = 0; round < 2; ++round) {
    recorders.clear();
    for (int i = 0; i < 1000; ++i) {
      recorders.push_back(std::make_unique<Recorder>());
      const std::string target = "/" + std::to_string(i);
      client->start({.to = {"127.0.0.1", (*opened)->port()}, .method = "GET", .target = target},
                    *recorders.back());
    }
    for (size_t i = 0; i < recorders.size(); ++i) {
      ASSERT_TRUE(finished(*recorders[i]));
      ASSERT_TRUE(recorders[i]->ended) << recorders[i]->error->message;
      EXPECT_NE(recorders[i]->body.find("/" + std::to_string(i) + "\r\n"), std::string::npos);
    }
  }
}

// A server behind the client, and a body that is sent as it takes it.
TEST(HttpClientStream, SendsABodyAsTheServerTakesIt) {
  EventLoop loop;
  LambdaHandler handler;
  std::string received;
  auto server = HttpServer::open(loop, handler, {});
  ASSERT_TRUE(server);
  handler.head = [](HttpRequest& request) {
    request.streams = true;
    return std::optional<EarlyReply>();
  };
  handler.body = [&](ExchangeId id, std::string_view bytes, BodyPart part) {
    received += bytes;
    if (part == BodyPart::kLast) {
      (*server)->reply(id, 200, "text/plain", "ok");
    }
  };
  class Sender final : public HttpCallHandler {
   public:
    explicit Sender(HttpClient& client) : client_(client) {}
    size_t left = 300;  // Pieces.
    int status = 0;
    bool ended = false;
    void on_head(CallId, const HttpReplyHead& reply) override { status = reply.status; }
    void on_body(CallId, std::string_view) override {}
    void on_end(CallId) override { ended = true; }
    void on_error(CallId, const Error& error) override { ADD_FAILURE() << error.message; }
    void on_writable(CallId id) override {
      while (left > 0 && client_.send_body(id, std::string(100'000, 'x')) == 0) {
        --left;
      }
      if (left > 0) {
        --left;  // It waits now.
      } else {
        client_.end_body(id);
      }
    }

   private:
    HttpClient& client_;
  };
  const auto client = HttpClient::create(loop);
  Sender sender(*client);
  const CallId call = client->start({.to = {"127.0.0.1", (*server)->port()},
                                     .header_lines = "Content-Length: 30000005\r\n",
                                     .streams = true},
                                    sender);
  client->send_body(call, "early");  // Before there is a connection.
  ASSERT_TRUE(run_until(loop, [&] { return sender.ended; }));
  EXPECT_EQ(sender.status, 200);
  EXPECT_EQ(received.size(), 30'000'005U);
  EXPECT_TRUE(received.starts_with("earlyx"));
}

TEST(HttpAddress, IsParsedStrictly) {
  EXPECT_EQ(parse_http_address("http://a.b-c:80").value(), (HttpAddress{"a.b-c", 80}));
  EXPECT_EQ(parse_http_address("a:65535").value(), (HttpAddress{"a", 65535}));
  EXPECT_EQ(parse_http_address("http://a").value(), (HttpAddress{"a", 80}));
  EXPECT_EQ(parse_http_address("http://[::1]:8").value(), (HttpAddress{"::1", 8}));
  EXPECT_EQ(parse_http_address("[::1]:8").value().to_string(), "[::1]:8");
  for (const char* text :
       {"",        ":",           ":1",        "a",           "a:",           "a:65536", "a:1x",
        "http://", "http://a:1/", "http://a/", "https://a:1", "http://u@a:1", "a b:1",   "[",
        "[]",      "[]:1",        "[::1",      "[::1]x",      "[a]:1",        "a:1:2",   "a:-1"}) {
    EXPECT_FALSE(parse_http_address(text).has_value()) << text;
  }
}

}  // namespace
}  // namespace pdjob::net
