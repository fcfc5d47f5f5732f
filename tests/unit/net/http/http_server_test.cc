#include "net/http/http_server.h"

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <sys/epoll.h>
#include <sys/resource.h>

#include "common/limits.h"
#include "common/os/descriptors.h"
#include "tests/unit/net/loop_test_support.h"
#include "tests/unit/net/tls/tls_client.h"

namespace pdjob::net {
namespace {

constexpr std::string_view kGet = "GET /x?y=1 HTTP/1.1\r\nHost: h\r\n\r\n";

size_t count_of(std::string_view text, std::string_view part) {
  size_t count = 0;
  for (size_t at = text.find(part); at != text.npos; at = text.find(part, at + part.size())) {
    ++count;
  }
  return count;
}

// A client's end of TLS. What is sent before the handshake is done waits for it.
class TlsWrapping final : public Wrapping {
 public:
  std::string wrapped(std::string_view text) override {
    waiting_ += text;
    return go_on();
  }
  std::string unwrapped(std::string_view bytes, std::string& answers) override {
    client_.feed(bytes);
    answers = go_on();
    return open_ ? client_.read() : std::string();
  }
  bool ended() const override { return client_.ended(); }

 private:
  std::string go_on() {
    open_ = open_ || client_.shake_hands();
    if (open_) {
      client_.write(std::exchange(waiting_, {}));
    }
    return client_.take();
  }

  TlsClient client_;
  std::string waiting_;
  bool open_ = false;
};

enum class Door { kPlain, kTls };

class HttpServerTest : public testing::TestWithParam<Door> {
 protected:
  void open(HttpServerOptions options = {}) {
    if (GetParam() == Door::kTls) {
      tls = *ServerTls::open(make_certificate(testing::TempDir()));
      options.tls = tls.get();
    }
    auto opened = HttpServer::open(loop, handler, options);
    ASSERT_TRUE(opened.has_value()) << opened.error().message;
    server = std::move(*opened);
  }
  // Replies to each request with its method, path, query and body.
  void echo() {
    handler.answer = [this](ExchangeId id, HttpRequest& request) {
      server->reply(id, 200, "text/plain",
                    std::string(request.method) + " " + std::string(request.path) + " " +
                        std::string(request.query) + " " + request.body);
    };
  }
  // Under TLS, after the handshake.
  std::unique_ptr<RawClient> connect() {
    if (GetParam() == Door::kPlain) {
      return std::make_unique<RawClient>(loop, server->port());
    }
    auto client =
        std::make_unique<RawClient>(loop, server->port(), std::make_unique<TlsWrapping>());
    const uint64_t before = tls->counts().done;
    client->send("");
    EXPECT_TRUE(run_until(loop, [&] {
      client->received();
      return tls->counts().done > before;
    }));
    return client;
  }

  EventLoop loop;
  LambdaHandler handler;
  std::unique_ptr<ServerTls> tls;
  std::unique_ptr<HttpServer> server;
};

TEST_P(HttpServerTest, AnswersARequest) {
  open();
  echo();
  const auto client = connect();
  client->send(kGet);
  ASSERT_TRUE(client->wait_for("GET /x y=1 "));
  EXPECT_EQ(client->received(),
            "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 11\r\n\r\nGET /x y=1 ");
  EXPECT_EQ(server->replies_alive(), 0U);
}

TEST_P(HttpServerTest, ServersThatShareAPortHaveOneOfTheirOwn) {
  auto shared = listen_on("127.0.0.1", 0, PortUse::kShared);
  ASSERT_TRUE(shared.has_value());
  const uint16_t port = local_port(shared->get());
  const Fd other = *listen_on("127.0.0.1", port, PortUse::kShared);
  open({.listen_fd = dup(shared->get()), .own_port = true});
  echo();
  EXPECT_EQ(server->port(), port);
  EXPECT_NE(server->own_port(), port);
  RawClient client(loop, server->own_port());
  client.send(kGet);
  EXPECT_TRUE(client.wait_for("GET /x y=1 "));
}

TEST_P(HttpServerTest, TakesRequestsByteByByte) {
  open();
  echo();
  const auto client = connect();
  client->send_in_pieces("POST /p HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\nhello", 1);
  ASSERT_TRUE(client->wait_for("POST /p  hello"));
  client->send_in_pieces(
      "POST /q HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: "
      "chunked\r\n\r\n3;x=y\r\nabc\r\n2\r\nde\r\n0\r\nT: t\r\n\r\n",
      1);
  ASSERT_TRUE(client->wait_for("POST /q  abcde"));
}

TEST_P(HttpServerTest, KeepsPipelinedRepliesInOrder) {
  open();
  // Each is answered later, so all of them wait in the connection.
  handler.answer = [this](ExchangeId id, HttpRequest& request) {
    loop.call_at(loop.now(), [this, id, path = std::string(request.path)] {
      server->reply(id, 200, "text/plain", path);
    });
  };
  const auto client = connect();
  std::string requests;
  std::string expected;
  for (int i = 100; i < 200; ++i) {
    requests += "GET /" + std::to_string(i) + " HTTP/1.1\r\nHost: h\r\n\r\n";
    expected += "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 4\r\n\r\n/" +
                std::to_string(i);
  }
  client->send_in_pieces(requests, 1000);
  ASSERT_TRUE(client->wait_for("/199"));
  EXPECT_EQ(client->received(), expected);
}

TEST_P(HttpServerTest, HoldsOnlySoManyPipelinedBytes) {
  open();
  const auto client = connect();
  client->send(kGet);
  ASSERT_TRUE(run_until(loop, [&] { return handler.requests.size() == 1; }));
  // Far more bytes than the server holds while the first reply is under way. All are answered in
  // the end.
  constexpr size_t kRequests = 20000;
  std::string rest;
  for (size_t i = 1; i < kRequests; ++i) {
    rest += kGet;
  }
  handler.answer = [this](ExchangeId id, HttpRequest&) {
    server->reply(id, 200, "text/plain", "answer");
  };
  loop.call_at(loop.now() + std::chrono::milliseconds(100),
               [&] { server->reply(handler.requests.front(), 200, "text/plain", "answer"); });
  client->send(rest);
  ASSERT_TRUE(
      run_until(loop, [&] { return client->received(), handler.requests.size() == kRequests; }));
  ASSERT_TRUE(run_until(loop, [&] { return count_of(client->received(), "answer") == kRequests; }));
}

TEST_P(HttpServerTest, ClientsMayLeaveInTheTurnInWhichTheyAreAnswered) {
  open();
  echo();
  for (int i = 0; i < 20; ++i) {
    const auto client = connect();
    client->send(kGet);
  }
  ASSERT_TRUE(run_until(loop, [&] { return handler.requests.size() == 20; }));
  const auto client = connect();
  client->send(kGet);
  EXPECT_TRUE(client->wait_for("GET /x y=1 "));
}

TEST_P(HttpServerTest, WhatIsSentInTheTurnInWhichTheLoopStopsIsSent) {
  open();
  handler.answer = [this](ExchangeId id, HttpRequest&) {
    loop.call_at(loop.now(), [this, id] {
      server->reply(id, 200, "text/plain", "the last word");
      loop.stop();
    });
  };
  const auto client = connect();
  client->send(kGet);
  loop.run();
  server.reset();
  EXPECT_TRUE(client->wait_for("the last word"));
}

TEST_P(HttpServerTest, StreamsChunked) {
  open();
  const auto client = connect();
  client->send(kGet);
  ASSERT_TRUE(run_until(loop, [&] { return handler.requests.size() == 1; }));
  const ExchangeId id = handler.requests.front();
  server->begin(id, 200, "text/event-stream", {{"x-pdjob-worker", "decode-0"}});
  ASSERT_TRUE(client->wait_for("\r\n\r\n"));  // The head does not wait for the first piece.
  EXPECT_EQ(client->take(),
            "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nx-pdjob-worker: decode-0\r\n"
            "Transfer-Encoding: chunked\r\n\r\n");
  server->write(id, "data: 1\n\n");
  server->write(id, "");
  server->write(id, std::string(16, 'x'));
  server->end(id);
  server->write(id, "late");
  ASSERT_TRUE(client->wait_for("0\r\n\r\n"));
  EXPECT_EQ(client->take(), "9\r\ndata: 1\n\n\r\n10\r\nxxxxxxxxxxxxxxxx\r\n0\r\n\r\n");
  // The connection stays open.
  client->send(kGet);
  ASSERT_TRUE(run_until(loop, [&] { return handler.requests.size() == 2; }));
}

TEST_P(HttpServerTest, StreamsToHttp10UntilClose) {
  open();
  handler.answer = [this](ExchangeId id, HttpRequest&) {
    EXPECT_TRUE(server->is_http_1_0(id));
    server->begin(id, 200, "text/plain");
    server->write(id, "abc");
    server->end(id);
  };
  const auto client = connect();
  client->send("GET / HTTP/1.0\r\n\r\n");
  ASSERT_TRUE(client->wait_for_end());
  EXPECT_TRUE(client->received().ends_with("Connection: close\r\n\r\nabc")) << client->received();
}

TEST_P(HttpServerTest, PassesRawRepliesThrough) {
  open();
  handler.answer = [this](ExchangeId id, HttpRequest&) {
    server->begin_raw(id, "HTTP/1.1 200 Fine\r\nTransfer-Encoding: chunked\r\n\r\n");
    server->write_raw(id, "1\r\na\r\n");
    server->write_raw(id, "0\r\n\r\n");
    server->end_raw(id, true);
  };
  const auto client = connect();
  client->send(std::string(kGet) + std::string(kGet));
  const std::string reply =
      "HTTP/1.1 200 Fine\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\n\r\n";
  ASSERT_TRUE(client->wait_for_bytes(2 * reply.size()));
  EXPECT_EQ(client->received(), reply + reply);
}

TEST_P(HttpServerTest, SendsInterimResponsesBeforeTheReplyAndNotToOldClients) {
  open();
  handler.answer = [this](ExchangeId id, HttpRequest&) {
    server->interim(id, "x-a: 1\r\n");
    server->interim(id, "x-a: 2\r\n");
    server->begin_raw(id, "HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n");
    server->interim(id, "x-a: 3\r\n");
    server->write_raw(id, "b");
    server->end_raw(id, true);
  };
  const auto client = connect();
  client->send(kGet);
  const std::string final = "HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nb";
  const std::string reply =
      "HTTP/1.1 103 Early Hints\r\nx-a: 1\r\n\r\n"
      "HTTP/1.1 103 Early Hints\r\nx-a: 2\r\n\r\n" +
      final;
  ASSERT_TRUE(client->wait_for_bytes(reply.size()));
  EXPECT_EQ(client->received(), reply);
  const auto old = connect();
  old->send("GET / HTTP/1.0\r\n\r\n");
  ASSERT_TRUE(old->wait_for_end());
  EXPECT_EQ(old->received(), final);
}

TEST_P(HttpServerTest, ClosesAfterARawReplyThatEndsByClosing) {
  open();
  handler.answer = [this](ExchangeId id, HttpRequest&) {
    server->begin_raw(id, "HTTP/1.1 200 OK\r\n\r\n");
    server->write_raw(id, "abc");
    server->end_raw(id, false);
  };
  const auto client = connect();
  client->send(kGet);
  ASSERT_TRUE(client->wait_for_end());
  EXPECT_EQ(client->received(), "HTTP/1.1 200 OK\r\n\r\nabc");
}

TEST_P(HttpServerTest, AnswersHeadWithoutBody) {
  open();
  echo();
  const auto client = connect();
  client->send("HEAD /x HTTP/1.1\r\nHost: h\r\n\r\n");
  ASSERT_TRUE(client->wait_for("\r\n\r\n"));
  client->send(kGet);
  ASSERT_TRUE(client->wait_for("GET /x"));
  EXPECT_EQ(client->received(),
            "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 8\r\n\r\n"
            "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 11\r\n\r\nGET /x y=1 ");
}

TEST_P(HttpServerTest, HonoursConnectionClose) {
  open();
  echo();
  const auto client = connect();
  client->send("GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n" + std::string(kGet));
  ASSERT_TRUE(client->wait_for_end());
  EXPECT_EQ(count_of(client->received(), "HTTP/1.1 200"), 1U);
  EXPECT_NE(client->received().find("Connection: close\r\n"), std::string::npos);
  EXPECT_EQ(handler.requests.size(), 1U);
}

TEST_P(HttpServerTest, KeepsHttp10AliveOnlyWhenAsked) {
  open();
  echo();
  const auto client = connect();
  client->send("GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
  ASSERT_TRUE(client->wait_for("Connection: keep-alive"));
  client->send("GET / HTTP/1.0\r\n\r\n");
  ASSERT_TRUE(client->wait_for_end());
  EXPECT_EQ(count_of(client->received(), "HTTP/1.1 200"), 2U);
}

TEST_P(HttpServerTest, AnswersExpectContinue) {
  open();
  echo();
  const auto client = connect();
  client->send("POST / HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n");
  ASSERT_TRUE(client->wait_for("HTTP/1.1 100 Continue\r\n\r\n"));
  client->send("ok");
  ASSERT_TRUE(client->wait_for("POST /  ok"));
}

struct RefusedCase {
  const char* name;
  std::string bytes;
  int status;
};

TEST_P(HttpServerTest, RefusesWithAnOpenAiErrorAndCloses) {
  open({.body_bytes_max = 1000});
  echo();
  const std::vector<RefusedCase> cases = {
      {"garbage", "\x16\x03\x01\x02 tls?\r\n\r\n", 400},
      {"bare LF", "GET / HTTP/1.1\nHost: h\n\n", 400},
      {"HTTP/2 preface", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 505},
      {"large body", "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 1001\r\n\r\n", 413},
      {"large chunked body",
       "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n400\r\n" +
           std::string(1024, 'x'),
       413},
      {"malformed chunk", "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
       400},
      {"other encoding", "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: gzip, chunked\r\n\r\n",
       501},
      {"large head",
       "GET / HTTP/1.1\r\nHost: h\r\nX: " + std::string(limits::kHttpHeadBytesMax, 'x'), 431},
      {"unknown expectation", "GET / HTTP/1.1\r\nHost: h\r\nExpect: tea\r\n\r\n", 417},
  };
  for (const RefusedCase& refused : cases) {
    const auto client = connect();
    client->send(refused.bytes);
    ASSERT_TRUE(client->wait_for_end()) << refused.name;
    const std::string& reply = client->received();
    EXPECT_TRUE(reply.starts_with("HTTP/1.1 " + std::to_string(refused.status) + " "))
        << refused.name << reply;
    EXPECT_NE(reply.find(R"({"error":{"message":")"), std::string::npos) << reply;
    EXPECT_TRUE(reply.ends_with(R"(","type":"invalid_request_error","param":null,"code":null}})"))
        << reply;
    EXPECT_NE(reply.find("Connection: close\r\n"), std::string::npos) << reply;
  }
  EXPECT_TRUE(handler.requests.empty());
}

TEST_P(HttpServerTest, LetsAClientReadTheRefusalOfABodyItIsStillSending) {
  open({.body_bytes_max = 1000});
  const auto client = connect();
  client->send("POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 4000000\r\n\r\n" +
               std::string(4000000, 'x'));
  ASSERT_TRUE(client->wait_for_end());
  EXPECT_TRUE(client->received().starts_with("HTTP/1.1 413 "));
}

TEST_P(HttpServerTest, TakesALargeBodyAndSendsALargeReply) {
  open();
  std::string got;
  handler.answer = [&](ExchangeId id, HttpRequest& request) {
    got = std::move(request.body);
    server->reply(id, 200, "application/octet-stream", got);
  };
  std::string body(8 * limits::kMiB, ' ');
  for (size_t i = 0; i < body.size(); ++i) {
    body[i] = static_cast<char>(i * 7 + i / 251);
  }
  const auto client = connect();
  client->send("POST / HTTP/1.1\r\nHost: h\r\nContent-Length: " + std::to_string(body.size()) +
               "\r\n\r\n" + body);
  ASSERT_TRUE(run_until(loop, [&] {
    return client->received().ends_with(std::string_view(body).substr(body.size() - 64));
  }));
  EXPECT_TRUE(got == body);
  EXPECT_TRUE(client->received().ends_with(body));
}

TEST_P(HttpServerTest, TellsThatTheClientIsGone) {
  open();
  const auto client = connect();
  client->send(kGet);
  ASSERT_TRUE(run_until(loop, [&] { return handler.requests.size() == 1; }));
  const ExchangeId id = handler.requests.front();
  server->begin(id, 200, "text/plain");
  server->write(id, "some");
  client->close();
  ASSERT_TRUE(run_until(loop, [&] { return handler.gone.size() == 1; }));
  EXPECT_EQ(handler.gone.front(), id);
  EXPECT_EQ(server->replies_alive(), 0U);
  // The id is inert now.
  server->write(id, "more");
  server->end(id);
  server->abort(id);
  EXPECT_EQ(server->bytes_queued(id), 0U);
}

TEST_P(HttpServerTest, NoticesAClientLeavingBehindPipelinedBytes) {
  open();
  const auto client = connect();
  std::string requests;
  while (requests.size() < 3 * limits::kHttpHeadBytesMax) {
    requests += kGet;
  }
  client->send(requests);
  ASSERT_TRUE(run_until(loop, [&] { return handler.requests.size() == 1; }));
  client->close_sending();
  ASSERT_TRUE(run_until(loop, [&] { return handler.gone.size() == 1; }));
}

TEST_P(HttpServerTest, AnswersAtOnceAClientThatHasHalfClosed) {
  open();
  echo();
  const auto client = connect();
  client->send(kGet);
  client->close_sending();
  ASSERT_TRUE(client->wait_for_end());
  EXPECT_TRUE(client->received().ends_with("GET /x y=1 "));
}

TEST_P(HttpServerTest, DoesNotTellOfAClientGoneAfterTheReply) {
  open();
  echo();
  const auto client = connect();
  client->send(kGet);
  ASSERT_TRUE(client->wait_for("GET /x"));
  client->close();
  run_for(loop, std::chrono::milliseconds(50));
  EXPECT_TRUE(handler.gone.empty());
}

TEST_P(HttpServerTest, AbortShowsAnIncompleteReply) {
  open();
  const auto client = connect();
  client->send(kGet);
  ASSERT_TRUE(run_until(loop, [&] { return handler.requests.size() == 1; }));
  server->begin(handler.requests.front(), 200, "text/plain");
  server->write(handler.requests.front(), "part");
  server->abort(handler.requests.front());
  ASSERT_TRUE(client->wait_for_end());
  EXPECT_TRUE(client->received().ends_with("4\r\npart\r\n"));
  EXPECT_TRUE(handler.gone.empty());
  EXPECT_EQ(server->replies_alive(), 0U);
}

TEST_P(HttpServerTest, NoWriteCallsTheHandlerEvenIfItFindsThatTheClientIsGone) {
  open();
  const std::string piece(limits::kMiB, 'p');
  const std::function<void(ExchangeId)> endings[] = {
      [&](ExchangeId id) { server->reply(id, 200, "text/plain", piece); },
      [&](ExchangeId id) {
        server->begin(id, 200, "text/plain");
        server->write(id, piece);
        server->write(id, piece);
        server->end(id);
      },
      [&](ExchangeId id) {
        server->begin_raw(id, "HTTP/1.1 200 OK\r\nContent-Length: 2097152\r\n\r\n");
        server->write_raw(id, piece);
        server->write_raw(id, piece);
        server->end_raw(id, true);
      },
      [&](ExchangeId id) {
        server->begin(id, 200, "text/plain");
        server->write(id, piece);
        server->abort(id);
      },
      [&](ExchangeId id) {
        server->begin(id, 200, "text/plain");
        server->write(id, piece);
        server->write(id, piece);
      }};
  for (const auto& ending : endings) {
    const auto client = connect();
    client->send(kGet);
    ASSERT_TRUE(run_until(loop, [&] { return handler.requests.size() == 1; }));
    const ExchangeId id = std::exchange(handler.requests, {}).front();
    const linger at_once{.l_onoff = 1, .l_linger = 0};
    setsockopt(client->fd(), SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
    client->close();
    ending(id);
    EXPECT_TRUE(handler.gone.empty());
  }
  // Only the last one has not ended.
  ASSERT_TRUE(run_until(loop, [&] { return handler.gone.size() == 1; }));
}

TEST_P(HttpServerTest, QueuesForASlowReaderAndTellsWhenItHasCaughtUp) {
  open();
  const auto client = connect();
  client->send(kGet);
  ASSERT_TRUE(run_until(loop, [&] { return handler.requests.size() == 1; }));
  const ExchangeId id = handler.requests.front();
  server->begin(id, 200, "text/plain");
  const std::string piece(100000, 'p');
  size_t written = 0;
  while (server->bytes_queued(id) <= limits::kHttpSendQueueBytesMax) {
    server->write(id, piece);
    ++written;
  }
  run_for(loop, std::chrono::milliseconds(20));
  EXPECT_TRUE(handler.writable.empty());
  ASSERT_TRUE(run_until(loop, [&] { return client->received(), !handler.writable.empty(); }));
  EXPECT_LT(server->bytes_queued(id), limits::kHttpSendQueueBytesMax / 2);
  server->end(id);
  ASSERT_TRUE(run_until(loop, [&] { return client->received().ends_with("\r\n0\r\n\r\n"); }));
  EXPECT_EQ(count_of(client->received(), "186a0\r\np"), written);
  EXPECT_EQ(handler.writable.size(), 1U);
}

// A worker that drains ends when no reply is alive.
TEST_P(HttpServerTest, AReplyIsAliveUntilItsLastByteHasLeft) {
  open();
  const auto client = connect();
  client->send(kGet);
  ASSERT_TRUE(run_until(loop, [&] { return handler.requests.size() == 1; }));
  EXPECT_EQ(server->replies_alive(), 1U);
  server->reply(handler.requests.front(), 200, "text/plain", "short");
  EXPECT_EQ(server->replies_alive(), 1U) << "it leaves at the end of the turn";
  ASSERT_TRUE(run_until(loop, [&] { return server->replies_alive() == 0; }));
  ASSERT_TRUE(client->wait_for("short"));

  client->send(kGet);
  ASSERT_TRUE(run_until(loop, [&] { return handler.requests.size() == 2; }));
  server->reply(handler.requests.back(), 200, "text/plain", std::string(32 * limits::kMiB, 'x'));
  run_for(loop, std::chrono::milliseconds(20));
  EXPECT_EQ(server->replies_alive(), 1U) << "its reader has taken only a part";
  ASSERT_TRUE(run_until(loop, [&] { return client->received(), server->replies_alive() == 0; }));
}

TEST_P(HttpServerTest, CutsAReaderThatTakesNothing) {
  open({.idle_timeout = std::chrono::milliseconds(200)});
  const auto client = connect();
  client->send(kGet);
  ASSERT_TRUE(run_until(loop, [&] { return handler.requests.size() == 1; }));
  server->begin(handler.requests.front(), 200, "text/plain");
  server->write(handler.requests.front(), std::string(16 * limits::kMiB, 'x'));
  ASSERT_TRUE(run_until(loop, [&] { return handler.gone.size() == 1; }));
}

TEST_P(HttpServerTest, CutsAReaderThatTakesNothingButGoesOnSending) {
  open({.idle_timeout = std::chrono::milliseconds(300)});
  handler.answer = [this](ExchangeId id, HttpRequest&) {
    server->reply(id, 200, "text/plain", std::string(12000, 'x'));
  };
  const auto client = connect();
  const int little = 4096;
  setsockopt(client->fd(), SOL_SOCKET, SO_RCVBUF, &little, sizeof little);
  std::string requests;
  for (int i = 0; i < 1000; ++i) {
    requests += kGet;
  }
  requests += "POST /p HTTP/1.1\r\nHost: h\r\nContent-Length: 4\r\n\r\nab";
  client->send(requests);
  loop.call_at(loop.now() + std::chrono::milliseconds(100),
               [&] { ASSERT_EQ(::send(client->fd(), "cd", 2, MSG_NOSIGNAL), 2); });
  // Every request is answered or cut off, and the connection ends.
  ASSERT_TRUE(run_until(loop, [&] {
    char byte = 0;
    return server->replies_alive() == 0 &&
           ::send(client->fd(), &byte, 1, MSG_NOSIGNAL | MSG_DONTWAIT) < 0 && errno != EAGAIN;
  }));
}

TEST_P(HttpServerTest, CutsAReaderWhoseSourceIgnoresTheQueue) {
  open();
  const auto client = connect();
  client->send(kGet);
  ASSERT_TRUE(run_until(loop, [&] { return handler.requests.size() == 1; }));
  server->begin(handler.requests.front(), 200, "text/plain");
  const std::string piece(limits::kMiB, 'p');
  for (int i = 0; i < 100; ++i) {
    server->write(handler.requests.front(), piece);
  }
  EXPECT_LT(server->bytes_queued(handler.requests.front()), 70 * limits::kMiB);
  ASSERT_TRUE(run_until(loop, [&] { return handler.gone.size() == 1; }));
}

TEST_P(HttpServerTest, ClosesIdleConnections) {
  open({.idle_timeout = std::chrono::milliseconds(50)});
  echo();
  const auto silent = connect();
  const auto client = connect();
  client->send(kGet);
  ASSERT_TRUE(client->wait_for("GET /x"));
  ASSERT_TRUE(client->wait_for_end());
  ASSERT_TRUE(silent->wait_for_end());
  EXPECT_TRUE(silent->received().empty());
}

TEST_P(HttpServerTest, RefusesARequestThatTakesTooLong) {
  open({.request_timeout = std::chrono::milliseconds(50)});
  const auto slow_head = connect();
  slow_head->send("GET / HT");
  const auto slow_body = connect();
  slow_body->send("POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 9\r\n\r\nabc");
  ASSERT_TRUE(slow_head->wait_for_end());
  ASSERT_TRUE(slow_body->wait_for_end());
  EXPECT_TRUE(slow_head->received().starts_with("HTTP/1.1 408 "));
  EXPECT_TRUE(slow_body->received().starts_with("HTTP/1.1 408 "));
}

TEST_P(HttpServerTest, TurnsAwayMoreRequestsAtOnceThanItsLimit) {
  open({.connections_max = 2});
  const auto first = connect();
  const auto second = connect();
  first->send(kGet);
  second->send(kGet);
  ASSERT_TRUE(run_until(loop, [&] { return handler.requests.size() == 2; }));
  const auto third = connect();
  ASSERT_TRUE(third->wait_for_end());
  EXPECT_TRUE(third->received().starts_with("HTTP/1.1 503 "));
  // The place is free again.
  first->close();
  ASSERT_TRUE(run_until(loop, [&] { return handler.gone.size() == 1; }));
  echo();
  const auto fourth = connect();
  fourth->send(kGet);
  EXPECT_TRUE(fourth->wait_for("GET /x"));
}

// A client of a loop that has nothing else. Its first bytes are a request; more come as fast as
// they are read.
class EndlessClient final : public Stream {
 public:
  EndlessClient(size_t& reads, FdHandler*& connection) : reads_(reads), connection_(connection) {}
  Status watch(FdHandler& handler) override {
    connection_ = &handler;
    return ok();
  }
  int connect_error() const override { return 0; }
  ssize_t read(std::span<char> to) override {
    ++reads_;
    std::ranges::fill(to, '\n');
    std::ranges::copy(std::exchange(request_, {}), to.begin());
    return reads_ < 1000 ? static_cast<ssize_t>(to.size()) : 0;
  }
  ssize_t write(std::span<const std::string_view> pieces) override {
    return static_cast<ssize_t>(pieces.front().size());
  }
  void finish_writing() override {}
  void reset_when_closed() override {}

 private:
  size_t& reads_;
  FdHandler*& connection_;
  std::string_view request_ = kGet;
};

class EndlessClientsLoop final : public Loop {
 public:
  class Door final : public Listener {
   public:
    explicit Door(EndlessClientsLoop& loop) : loop_(loop) {}
    Status watch(FdHandler& handler) override {
      loop_.server_ = &handler;
      return ok();
    }
    Result<std::unique_ptr<Stream>> accept() override {
      return std::exchange(loop_.arrives_, false)
                 ? std::unique_ptr<Stream>(
                       std::make_unique<EndlessClient>(loop_.reads, loop_.newest))
                 : nullptr;
    }
    uint16_t port() const override { return 1; }

   private:
    EndlessClientsLoop& loop_;
  };

  void let_one_arrive() {
    arrives_ = true;
    server_->on_ready(EPOLLIN);
  }

  Instant now() const override { return {}; }
  Instant exact_now() const override { return {}; }
  TimerId call_at(Instant /*when*/, std::function<void()> /*work*/) override { return {}; }
  void cancel(TimerId /*timer*/) override {}
  void post(std::function<void()> /*work*/) override {}
  void at_turn_end(TurnHandler& /*handler*/) override {}
  void forget_turn_end(TurnHandler& /*handler*/) override {}
  int64_t unix_seconds() const override { return 0; }
  uint64_t entropy() override { return 0; }
  Result<std::unique_ptr<Stream>> connect(const SocketAddress& /*address*/) override {
    return Error{ErrorCode::kUnsupported, ""};
  }
  Result<std::unique_ptr<Listener>> listen(const ListenOptions& /*options*/) override {
    return std::unique_ptr<Listener>(std::make_unique<Door>(*this));
  }
  std::unique_ptr<Resolver> make_resolver() override { return nullptr; }
  std::unique_ptr<Helper> make_helper(const std::string& /*name*/) override { return nullptr; }

  size_t reads = 0;
  FdHandler* newest = nullptr;  // Of the server's connections.

 private:
  FdHandler* server_ = nullptr;
  bool arrives_ = false;
};

TEST(HttpServerLimitTest, AClientThatIsTurnedAwayIsReadOnlySoFar) {
  EndlessClientsLoop loop;
  LambdaHandler handler;
  const auto server = HttpServer::open(loop, handler, {.connections_max = 1});
  ASSERT_TRUE(server.has_value());
  loop.let_one_arrive();
  loop.newest->on_ready(EPOLLIN);
  ASSERT_EQ(handler.requests.size(), 1U);
  loop.reads = 0;
  loop.let_one_arrive();
  EXPECT_EQ(handler.requests.size(), 1U);
  EXPECT_LE(loop.reads, 16U);
}

TEST_P(HttpServerTest, AtItsLimitTheConnectionThatWaitedLongestGivesWay) {
  open({.connections_max = 3});
  echo();
  const auto silent = connect();
  const auto kept = connect();
  const auto slow = connect();
  slow->send("GET / HT");
  kept->send(kGet);
  ASSERT_TRUE(kept->wait_for("GET /x"));  // So it has waited for less time than the others.
  const auto first = connect();
  first->send(kGet);
  EXPECT_TRUE(first->wait_for("GET /x"));
  EXPECT_TRUE(silent->wait_for_end());
  const auto second = connect();
  second->send(kGet);
  EXPECT_TRUE(second->wait_for("GET /x"));
  EXPECT_TRUE(slow->wait_for_end());
  EXPECT_FALSE(kept->ended());
}

TEST_P(HttpServerTest, AnArrivingBodyGivesWayOnlyWhenNobodyWaits) {
  open({.connections_max = 2});
  echo();
  const auto body = connect();
  body->send("POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 9\r\n\r\nabc");
  const auto silent = connect();
  const auto first = connect();
  EXPECT_TRUE(silent->wait_for_end());
  EXPECT_FALSE(body->ended());
  first->send("POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 9\r\n\r\nabc");
  run_for(loop, std::chrono::milliseconds(20));
  const auto second = connect();
  second->send(kGet);
  EXPECT_TRUE(second->wait_for("GET /x"));
  EXPECT_TRUE(body->wait_for_end());
}

TEST_P(HttpServerTest, AConnectionWhoseRequestHasArrivedIsNotClosedForANewOne) {
  open({.connections_max = 1});
  echo();
  const auto first = connect();
  const auto second = connect();
  EXPECT_TRUE(first->wait_for_end());
  // Both are there before the loop turns again.
  second->offer(kGet);
  const auto third = std::make_unique<RawClient>(loop, server->port());
  EXPECT_TRUE(second->wait_for("GET /x"));
}

// Descriptors run out before connections_max does, and the process has other uses for them.
TEST_P(HttpServerTest, WithoutDescriptorsAWaitingConnectionGivesWay) {
  open();
  echo();
  std::vector<std::unique_ptr<RawClient>> silent;
  for (int i = 0; i < 4; ++i) {
    silent.push_back(connect());
  }
  silent.back()->send(kGet);
  ASSERT_TRUE(silent.back()->wait_for("GET /x"));  // So all are accepted.
  RawClient client(loop, server->port(),
                   GetParam() == Door::kTls ? std::make_unique<TlsWrapping>() : nullptr);
  rlimit before{};
  getrlimit(RLIMIT_NOFILE, &before);
  const rlimit few{.rlim_cur = 64, .rlim_max = before.rlim_max};
  setrlimit(RLIMIT_NOFILE, &few);
  std::vector<Fd> taken;
  for (int fd = dup(client.fd()); fd >= 0; fd = dup(client.fd())) {
    taken.emplace_back(fd);
  }
  EXPECT_EQ(errno, EMFILE);
  client.send(kGet);
  EXPECT_TRUE(client.wait_for("GET /x"));
  EXPECT_TRUE(silent.front()->ended());
  setrlimit(RLIMIT_NOFILE, &before);
}

TEST_P(HttpServerTest, HalfOfTheDescriptorsAreForClients) {
  EXPECT_EQ(connections_within(1 << 20, 16384), 16384U);
  EXPECT_EQ(connections_within(1024, 16384), 384U);
  EXPECT_EQ(connections_within(40, 16384), 15U);
  EXPECT_EQ(connections_within(0, 16384), 1U);
}

TEST_P(HttpServerTest, RefusesPagesOfOtherSitesAtAnAddressOfThisMachine) {
  open({.own_names_only = true});
  echo();
  const auto status_of = [&](const std::string& headers) {
    const auto client = connect();
    client->send("POST /x HTTP/1.1\r\n" + headers + "Content-Length: 0\r\n\r\n");
    EXPECT_TRUE(client->wait_for("\r\n\r\n"));
    return client->received().substr(9, 3);
  };
  for (const std::string host : {"127.0.0.1", "localhost:8000", "[::1]:8000", "h"}) {
    const std::string named = "Host: " + host + "\r\n";
    EXPECT_EQ(status_of(named), "200") << host;
    EXPECT_EQ(status_of(named + "Origin: http://localhost:3000\r\n"), "200") << host;
    for (const char* origin : {"Origin: https://evil.example\r\n",
                               "Origin: http://127.0.0.1.evil.example\r\n", "Origin: null\r\n"}) {
      EXPECT_EQ(status_of(named + origin), "403") << origin;
    }
  }
  EXPECT_EQ(status_of("Host: evil.example:8000\r\n"), "403");
}

TEST_P(HttpServerTest, DrainsInOrder) {
  open();
  const auto idle = connect();
  const auto busy = connect();
  busy->send(kGet);
  ASSERT_TRUE(run_until(loop, [&] { return handler.requests.size() == 1; }));
  server->stop_accepting();
  ASSERT_TRUE(idle->wait_for_end());
  EXPECT_FALSE(busy->ended());
  EXPECT_EQ(server->replies_alive(), 1U);
  server->reply(handler.requests.front(), 200, "text/plain", "last");
  ASSERT_TRUE(busy->wait_for_end());
  EXPECT_NE(busy->received().find("Connection: close\r\n"), std::string::npos);
  EXPECT_TRUE(busy->received().ends_with("last"));
  EXPECT_EQ(server->replies_alive(), 0U);
}

TEST_P(HttpServerTest, TakesOverAListeningSocket) {
  auto listener = listen_on("127.0.0.1", 0);
  ASSERT_TRUE(listener.has_value());
  const uint16_t port = local_port(listener->get());
  open({.listen_fd = dup(listener->get())});
  echo();
  EXPECT_EQ(server->port(), port);
  const auto client = connect();
  client->send(kGet);
  EXPECT_TRUE(client->wait_for("GET /x"));
}

TEST_P(HttpServerTest, SaysThatAnAddressIsTaken) {
  open();
  const auto second = HttpServer::open(loop, handler, {.port = server->port()});
  ASSERT_FALSE(second.has_value());
  EXPECT_EQ(second.error().code, ErrorCode::kOverloaded);
}

TEST_P(HttpServerTest, ServesManyConnections) {
  const size_t many =
      GetParam() == Door::kTls ? 200 : 1000;  // Of TLS, the client's end costs most.
  open();
  echo();
  std::vector<std::unique_ptr<RawClient>> clients;
  while (clients.size() < many) {
    clients.push_back(connect());
    EXPECT_EQ(clients.back()->offer(kGet), kGet.size());
  }
  const auto all_answered = [&] {
    return std::ranges::all_of(
        clients, [](const auto& client) { return client->received().ends_with("GET /x y=1 "); });
  };
  ASSERT_TRUE(run_until(loop, all_answered));
  EXPECT_EQ(handler.requests.size(), many);
}

TEST_P(HttpServerTest, ClosesEverythingWhenDestroyed) {
  open();
  const auto client = connect();
  client->send(kGet);
  ASSERT_TRUE(run_until(loop, [&] { return handler.requests.size() == 1; }));
  server->begin(handler.requests.front(), 200, "text/plain");
  server.reset();
  ASSERT_TRUE(client->wait_for_end());
}

TEST_P(HttpServerTest, CannotBeMadeToSendAHeaderOfAValuesMaking) {
  open();
  handler.answer = [this](ExchangeId id, HttpRequest&) {
    server->reply(id, 200, "text/plain", "", {{"x-request-id", "a\r\nSet-Cookie: b"}});
  };
  const auto client = connect();
  client->send(kGet);
  ASSERT_TRUE(client->wait_for("\r\n\r\n"));
  EXPECT_EQ(client->received().find("\r\nSet-Cookie"), std::string::npos);
}

// ---- Bodies that stream

class StreamTest : public HttpServerTest {
 protected:
  void open_streaming(size_t body_bytes_max = 1 << 20) {
    open({.idle_timeout = std::chrono::milliseconds(300)});
    handler.head = [body_bytes_max](HttpRequest& request) {
      request.streams = true;
      request.body_bytes_max = body_bytes_max;
      return std::optional<EarlyReply>();
    };
    handler.answer = [this](ExchangeId id, HttpRequest& request) {
      EXPECT_TRUE(request.body.empty());
      if (!request.streams) {
        server->reply(id, 200, "text/plain", "bodiless");
      }
    };
    handler.body = [this](ExchangeId id, std::string_view bytes, BodyPart part) {
      body += bytes;
      if (part == BodyPart::kLast) {
        server->reply(id, 200, "text/plain", "got " + std::to_string(body.size()));
      }
    };
  }

  std::string body;
};

TEST_P(StreamTest, PassesABodyOnInEachFramingAndKeepsTheConnection) {
  open_streaming();
  const auto client = connect();
  client->send_in_pieces("POST /p HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\nhello", 1);
  ASSERT_TRUE(client->wait_for("got 5"));
  client->send_in_pieces(
      "POST /p HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: "
      "chunked\r\n\r\n3;x\r\nabc\r\n2\r\nde\r\n0\r\n\r\n",
      1);
  ASSERT_TRUE(client->wait_for("got 10"));
  EXPECT_EQ(body, "helloabcde");
  client->send(kGet);
  ASSERT_TRUE(client->wait_for("bodiless"));
  // The next request may stand behind the body.
  client->send("POST /p HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\n\r\nxy" + std::string(kGet));
  ASSERT_TRUE(client->wait_for("got 12"));
  ASSERT_TRUE(run_until(loop, [&] { return count_of(client->received(), "bodiless") == 2; }));
  EXPECT_EQ(server->held().total(), 0U);
}

TEST_P(StreamTest, APauseHoldsTheClientBack) {
  open_streaming(size_t{1} << 30);
  size_t received = 0;
  ExchangeId exchange{};
  handler.body = [&](ExchangeId id, std::string_view bytes, BodyPart part) {
    received += bytes.size();
    exchange = id;
    part == BodyPart::kLast ? server->reply(id, 200, "text/plain", "all") : server->pause_body(id);
  };
  constexpr size_t kBytes = size_t{64} << 20;
  const auto client = connect();
  client->send("POST /p HTTP/1.1\r\nHost: h\r\nContent-Length: " + std::to_string(kBytes) +
               "\r\n\r\n");
  const std::string piece(1 << 20, 'x');
  size_t sent = 0;
  const auto push = [&] {
    while (sent < kBytes) {
      const size_t count =
          client->offer(std::string_view(piece).substr(0, std::min(piece.size(), kBytes - sent)));
      if (count == 0) {
        return;
      }
      sent += count;
    }
    client->offer("");
  };
  run_until(loop, [&] { return push(), false; }, std::chrono::milliseconds(500));
  EXPECT_LT(sent, kBytes) << "the rest waits in the client";
  EXPECT_LT(received, size_t{1} << 20) << "one read after the pause";
  EXPECT_TRUE(handler.gone.empty()) << "a pause has no deadline";
  ASSERT_TRUE(run_until(loop, [&] {
    push();
    server->resume_body(exchange);
    return client->received().find("all") != std::string::npos;
  }));
  EXPECT_EQ(received, kBytes);
}

TEST_P(StreamTest, AReplyBeforeTheEndOfTheBodyClosesTheConnection) {
  open_streaming();
  handler.body = [this](ExchangeId id, std::string_view, BodyPart) {
    server->reply(id, 413, "text/plain", "too much");
  };
  const auto client = connect();
  client->send("POST /p HTTP/1.1\r\nHost: h\r\nContent-Length: 1000\r\n\r\nx");
  ASSERT_TRUE(client->wait_for("too much"));
  EXPECT_NE(client->received().find("Connection: close"), std::string::npos);
  client->send(std::string(999, 'x') + std::string(kGet));  // Not a request any more.
  EXPECT_TRUE(client->wait_for_end());
  EXPECT_EQ(handler.requests.size(), 1U);
}

TEST_P(StreamTest, TellsThatAClientLeftOrStalledOrLied) {
  open_streaming(10);
  const std::string head = "POST /p HTTP/1.1\r\nHost: h\r\n";
  const auto leaving = connect();
  leaving->send(head + "Content-Length: 9\r\n\r\nabc");
  ASSERT_TRUE(run_until(loop, [&] { return body == "abc"; }));
  leaving->close();
  ASSERT_TRUE(run_until(loop, [&] { return handler.gone.size() == 1; }));
  const auto stalled = connect();
  stalled->send(head + "Content-Length: 9\r\n\r\nabc");
  ASSERT_TRUE(run_until(loop, [&] { return handler.gone.size() == 2; }));
  const auto malformed = connect();
  malformed->send(head + "Transfer-Encoding: chunked\r\n\r\nzz\r\n");
  ASSERT_TRUE(run_until(loop, [&] { return handler.gone.size() == 3; }));
  const auto long_one = connect();
  long_one->send(head + "Transfer-Encoding: chunked\r\n\r\nb\r\n01234567890\r\n");
  ASSERT_TRUE(run_until(loop, [&] { return handler.gone.size() == 4; }));
  const auto announced = connect();
  announced->send(head + "Content-Length: 11\r\n\r\n");
  ASSERT_TRUE(announced->wait_for("413"));
  EXPECT_EQ(handler.requests.size(), 4U);
}

// Every test runs over plain TCP and over TLS.
std::string name_of(const testing::TestParamInfo<Door>& door) {
  return door.param == Door::kPlain ? "Plain" : "Tls";
}
INSTANTIATE_TEST_SUITE_P(, HttpServerTest, testing::Values(Door::kPlain, Door::kTls), name_of);
INSTANTIATE_TEST_SUITE_P(, StreamTest, testing::Values(Door::kPlain, Door::kTls), name_of);

}  // namespace
}  // namespace pdjob::net
