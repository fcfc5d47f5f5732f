// Ends of HTTP connections, for tests of the router's shell. All run on one event loop. Loop-bound.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>

#include <gtest/gtest.h>

#include "common/os/real_clock.h"
#include "net/http/http_client.h"
#include "net/http/http_server.h"
#include "net/loop/event_loop.h"

namespace pdjob::router {

// Runs the loop until `done` or the deadline. Returns whether `done` came true.
inline bool turn_until(net::EventLoop& loop, const std::function<bool()>& done,
                       Duration within = std::chrono::seconds(20)) {
  const Instant deadline = real_now() + within;
  while (!done() && real_now() < deadline) {
    loop.call_at(loop.now() + std::chrono::milliseconds(1), [&loop] { loop.stop(); });
    loop.run();
  }
  return done();
}

// Answers each request by `answer`. Counts the requests.
class Peer final : public net::HttpHandler {
 public:
  using Answer =
      std::function<void(net::HttpServer&, net::ExchangeId, const net::HttpRequest&, int asked)>;

  Peer(net::EventLoop& loop, Answer how) : answer(std::move(how)) {
    auto opened = net::HttpServer::open(loop, *this, {});
    EXPECT_TRUE(opened);
    server_ = std::move(*opened);
  }
  void on_request(net::ExchangeId id, net::HttpRequest& request) override {
    answer(*server_, id, request, ++asked);
  }
  void on_client_gone(net::ExchangeId /*id*/) override {}
  uint16_t port() const { return server_->port(); }

  Answer answer;
  int asked = 0;

 private:
  std::unique_ptr<net::HttpServer> server_;
};

// Records the reply of one call.
struct Reply final : net::HttpCallHandler {
  void on_head(net::CallId /*id*/, const net::HttpReplyHead& head) override {
    status = head.status;
    cache = head.header("x-pdjob-cache");
    age = head.header("age");
    type = head.header("content-type");
    request_id = head.header("x-request-id");
    chunked = head.framing == net::BodyFraming::kChunked;
  }
  void on_body(net::CallId /*id*/, std::string_view raw) override {
    if (chunked) {
      chunks.decode(raw, body);
    } else {
      body.append(raw);
    }
  }
  void on_end(net::CallId /*id*/) override { ended = true; }
  void on_error(net::CallId /*id*/, const Error& /*error*/) override { ended = failed = true; }

  int status = 0;
  std::string cache;
  std::string age;
  std::string type;
  std::string request_id;
  std::string body;
  bool chunked = false;
  bool ended = false;
  bool failed = false;
  net::ChunkDecoder chunks;
};

}  // namespace pdjob::router
