#include "router/batches/batch_relay.h"

#include <memory>
#include <optional>
#include <string>

#include <gtest/gtest.h>

#include "router/relay/client_sinks.h"
#include "tests/unit/net/loop_test_support.h"

namespace pdjob::router {
namespace {

using net::BodyPart;
using net::ExchangeId;
using net::run_until;

// A router that has nothing but the relay.
class Front final : public net::HttpHandler {
 public:
  Front(net::EventLoop& loop, const BatchDoor& door) {
    server = net::HttpServer::open(loop, *this, {}).value();
    sinks.emplace(*server);
    relay = std::make_unique<BatchRelay>(loop, *server, door);
  }

  std::optional<net::EarlyReply> on_head(net::HttpRequest& request) override {
    EXPECT_TRUE(BatchRelay::takes(request.path));
    relay->admit(request);
    return std::nullopt;
  }
  void on_request(ExchangeId id, net::HttpRequest& request) override {
    relay->route(id, request, "alice", "req-7", sinks->open(id, RequestId{id.value}));
  }
  void on_body(ExchangeId id, std::string_view bytes, BodyPart part) override {
    relay->on_body(id, bytes, part);
  }
  void on_client_gone(ExchangeId id) override { relay->client_gone(id); }
  void on_writable(ExchangeId id) override { relay->client_writable(id); }

  std::unique_ptr<net::HttpServer> server;
  std::optional<ClientSinks> sinks;
  std::unique_ptr<BatchRelay> relay;
};

class BatchRelayTest : public testing::Test {
 protected:
  void SetUp() override {
    backend = net::HttpServer::open(loop, process, {}).value();
    process.head = [this](net::HttpRequest& request) {
      request.streams = true;
      request.body_bytes_max = size_t{1} << 30;
      head.clear();
      for (const net::HttpHeader& each : request.headers) {
        head += std::string(each.name) + "=" + std::string(each.value) + "\n";
      }
      target = std::string(request.method) + " " + std::string(request.path) + "?" +
               std::string(request.query);
      return std::optional<net::EarlyReply>();
    };
    process.answer = [this](ExchangeId id, net::HttpRequest& request) {
      if (!request.streams) {
        backend->reply(id, 200, "text/plain", "none", {{"x-of-process", "yes"}});
      }
    };
    process.body = [this](ExchangeId id, std::string_view bytes, BodyPart part) {
      received += bytes;
      if (part == BodyPart::kLast) {
        backend->reply(id, 200, "text/plain", "got " + std::to_string(received.size()));
      }
    };
    front.emplace(loop, BatchDoor{.address = {"127.0.0.1", backend->port()},
                                  .key = "the-key-of-the-process",
                                  .rows_key = "",
                                  .body_bytes_max = size_t{1} << 30});
  }
  std::unique_ptr<net::RawClient> connect() {
    return std::make_unique<net::RawClient>(loop, front->server->port());
  }

  net::EventLoop loop;
  net::LambdaHandler process;
  std::unique_ptr<net::HttpServer> backend;
  std::optional<Front> front;
  std::string head;
  std::string target;
  std::string received;
};

TEST_F(BatchRelayTest, TakesOnlyItsPaths) {
  for (const char* const path :
       {"/v1/files", "/v1/files/x", "/v1/batches", "/v1/batches/x/cancel"}) {
    EXPECT_TRUE(BatchRelay::takes(path)) << path;
  }
  for (const char* const path : {"/v1/filesystem", "/v1", "/v1/models", "/v1/batches.x", ""}) {
    EXPECT_FALSE(BatchRelay::takes(path)) << path;
  }
}

TEST_F(BatchRelayTest, SaysWhoAsksAndHidesTheClientsOwnWords) {
  const auto client = connect();
  client->send(
      "GET /v1/files?limit=2 HTTP/1.1\r\nHost: h\r\nAuthorization: Bearer mine\r\n"
      "x-pdjob-batch-tenant: bob\r\nX-PDJOB-Batch-Tenant: eve\r\nx-other: 1\r\n\r\n");
  ASSERT_TRUE(client->wait_for("none"));
  EXPECT_EQ(target, "GET /v1/files?limit=2");
  EXPECT_NE(head.find("Authorization=Bearer the-key-of-the-process\n"), std::string::npos) << head;
  EXPECT_NE(head.find("x-pdjob-batch-tenant=alice\n"), std::string::npos) << head;
  EXPECT_NE(head.find("x-other=1\n"), std::string::npos) << head;
  for (const char* const hidden : {"mine", "bob", "eve"}) {
    EXPECT_EQ(head.find(hidden), std::string::npos) << head;
  }
  EXPECT_NE(client->received().find("x-of-process: yes"), std::string::npos);
  EXPECT_NE(client->received().find("x-request-id: req-7"), std::string::npos);
  EXPECT_EQ(front->relay->alive(), 0U);
}

TEST_F(BatchRelayTest, PassesABodyOnInEachFraming) {
  const auto client = connect();
  client->send_in_pieces("POST /v1/files HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\nhello", 3);
  ASSERT_TRUE(client->wait_for("got 5"));
  EXPECT_NE(head.find("Content-Length=5\n"), std::string::npos) << head;
  client->send_in_pieces(
      "POST /v1/files HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n"
      "3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n",
      1);
  ASSERT_TRUE(client->wait_for("got 10"));
  EXPECT_EQ(received, "helloabcde");
}

TEST_F(BatchRelayTest, ASlowProcessHoldsTheClientBack) {
  ExchangeId exchange{};
  size_t taken = 0;
  process.body = [&](ExchangeId id, std::string_view bytes, BodyPart part) {
    exchange = id;
    taken += bytes.size();
    part == BodyPart::kLast ? backend->reply(id, 200, "text/plain", "all")
                            : backend->pause_body(id);
  };
  constexpr size_t kBytes = size_t{64} << 20;
  const auto client = connect();
  client->send("POST /v1/files HTTP/1.1\r\nHost: h\r\nContent-Length: " + std::to_string(kBytes) +
               "\r\n\r\n");
  const std::string piece(1 << 20, 'x');
  size_t sent = 0;
  const auto push = [&] {
    ssize_t count = 1;
    while (sent < kBytes && count > 0) {
      count =
          ::send(client->fd(), piece.data(), std::min(piece.size(), kBytes - sent), MSG_NOSIGNAL);
      sent += count > 0 ? static_cast<size_t>(count) : 0;
    }
  };
  size_t before = 1;
  run_until(
      loop,
      [&] {
        before = sent;
        push();
        return false;
      },
      std::chrono::milliseconds(500));
  EXPECT_EQ(before, sent) << "nothing moves any more";
  EXPECT_LT(sent, kBytes / 2) << "buffers of the kernel, and a little of the router's";
  ASSERT_TRUE(run_until(loop, [&] {
    push();
    backend->resume_body(exchange);
    return client->received().find("all") != std::string::npos;
  }));
  EXPECT_EQ(taken, kBytes);
}

TEST_F(BatchRelayTest, PassesAnEarlyRefusalOn) {
  process.body = [this](ExchangeId id, std::string_view, BodyPart) {
    backend->reply(id, 413, "application/json", "too large");
  };
  const auto client = connect();
  client->send("POST /v1/files HTTP/1.1\r\nHost: h\r\nContent-Length: 1000\r\n\r\nx");
  ASSERT_TRUE(client->wait_for("too large"));
  EXPECT_TRUE(client->received().starts_with("HTTP/1.1 413"));
  EXPECT_TRUE(client->wait_for_end());
}

TEST_F(BatchRelayTest, ASilentOrMissingProcessIs503) {
  process.answer = [this](ExchangeId id, net::HttpRequest&) { backend->abort(id); };
  const auto client = connect();
  client->send("GET /v1/files HTTP/1.1\r\nHost: h\r\n\r\n");
  ASSERT_TRUE(client->wait_for("The Batch API does not answer now"));
  EXPECT_TRUE(client->received().starts_with("HTTP/1.1 503"));
  EXPECT_NE(client->received().find("Retry-After: 1"), std::string::npos);
  backend.reset();
  client->take();
  client->send("GET /v1/batches HTTP/1.1\r\nHost: h\r\n\r\n");
  EXPECT_TRUE(client->wait_for("The Batch API does not answer now"));
}

TEST_F(BatchRelayTest, ARequestThatMayHaveBeenCarriedOutIsNotRepeatedByTheClientItself) {
  process.answer = [this](ExchangeId id, net::HttpRequest&) { backend->abort(id); };
  const auto client = connect();
  client->send("POST /v1/batches HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\n\r\n{}");
  ASSERT_TRUE(client->wait_for("list your files or batches before you try again"));
  EXPECT_TRUE(client->received().starts_with("HTTP/1.1 503"));
  EXPECT_NE(client->received().find("x-should-retry: false"), std::string::npos);
}

TEST_F(BatchRelayTest, AClientThatLeavesEndsItsRequest) {
  const auto client = connect();
  client->send("POST /v1/files HTTP/1.1\r\nHost: h\r\nContent-Length: 9\r\n\r\nabc");
  ASSERT_TRUE(run_until(loop, [&] { return received == "abc"; }));
  client->close();
  EXPECT_TRUE(run_until(loop, [&] { return process.gone.size() == 1; }));
  EXPECT_EQ(front->relay->alive(), 0U);
}

}  // namespace
}  // namespace pdjob::router
