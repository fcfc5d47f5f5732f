// AsyncApi: asynchronous requests, for which no connection waits. A client submits a request and
// gets its id as soon as it is stored. It fetches the answer by that id later, or a callback
// delivers it. After a router dies, the next router with the same file runs its unanswered requests
// again. Loop-bound.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "net/http/http_server.h"
#include "net/loop/event_loop.h"
#include "router/async/async_caller.h"
#include "router/async/async_requests.h"
#include "router/async/async_store.h"
#include "router/relay/relay_api.h"

namespace pdjob::router {

class AsyncApi {
 public:
  // Requires: `config` has a file.
  static Result<std::unique_ptr<AsyncApi>> open(net::EventLoop& loop, net::HttpServer& server,
                                                RelayApi& relay, const RouterConfig& config);
  ~AsyncApi();
  AsyncApi(const AsyncApi&) = delete;
  AsyncApi& operator=(const AsyncApi&) = delete;

  // True if the request is to be stored, so its body counts as its tenant's.
  static bool takes_body(const net::HttpRequest& request);
  // Takes over asynchronous requests. Returns false for any other request.
  bool route(net::ExchangeId client, net::HttpRequest& request);
  // Stops starting requests and callbacks; running requests may end.
  void drain();
  // Calls `then` once no callback is under way. Call once, after drain().
  void when_idle(std::function<void()> then) { caller_->when_idle(std::move(then)); }

  const AsyncRequests& requests() const { return requests_; }
  const AsyncCallbacks& callbacks() const { return caller_->calls(); }

 private:
  AsyncApi(net::EventLoop& loop, net::HttpServer& server, RelayApi& relay,
           const RouterConfig& config, std::unique_ptr<AsyncDatabase> database);

  void submit(net::ExchangeId client, net::HttpRequest& request);
  void tell(net::ExchangeId client, const net::HttpRequest& request);
  void cancel(net::ExchangeId client, const net::HttpRequest& request);
  void refuse(net::ExchangeId client, const openai::ApiError& error);
  // The name of the asking tenant. Empty optional: it was denied, and the denial is answered.
  std::optional<std::string> tenant_of(net::ExchangeId client, const net::HttpRequest& request);

  void start_all();
  void start(const AsyncRow& row);
  // `row` may lack its body.
  void end(const AsyncRow& row, AsyncAnswer answer);
  // Deletes answers that are older than the TTL.
  void expire();

  net::EventLoop& loop_;
  net::HttpServer& server_;
  RelayApi& relay_;
  const AsyncConfig config_;
  AsyncRequests requests_;
  // Running requests, by id: their exchanges in the relay.
  std::map<std::string, net::ExchangeId> exchanges_;
  uint64_t started_ = 0;
  bool draining_ = false;
  net::TimerId expiry_;
  net::TimerId patience_;  // Retries start_all() until workers are usable and no request is held.
  AsyncStore store_;
  std::unique_ptr<AsyncCaller> caller_;
};

}  // namespace pdjob::router
