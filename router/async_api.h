// AsyncApi: requests that nobody waits for. A client submits one, is told its id as soon as it is
// stored, and asks for the answer by that id later, or is called with it. What a router had not
// answered when it died, the next one with the same file runs again. Loop-bound.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "net/event_loop.h"
#include "net/http_server.h"
#include "router/async_caller.h"
#include "router/async_requests.h"
#include "router/async_store.h"
#include "router/relay_api.h"

namespace pdjob::router {

class AsyncApi {
 public:
  // `config` has a file.
  static Result<std::unique_ptr<AsyncApi>> open(net::EventLoop& loop, net::HttpServer& server,
                                                RelayApi& relay, const RouterConfig& config);
  ~AsyncApi();
  AsyncApi(const AsyncApi&) = delete;
  AsyncApi& operator=(const AsyncApi&) = delete;

  // A request to be stored, whose body counts as its tenant's.
  static bool takes_body(const net::HttpRequest& request);
  // Takes the request over, if it is one of these. False: it is not.
  bool route(net::ExchangeId client, net::HttpRequest& request);
  // No more are started, and nobody is called any more; what runs may end.
  void drain();
  // `then` runs once nobody is being called. Once, after drain().
  void when_idle(std::function<void()> then) { caller_->when_idle(std::move(then)); }

  const AsyncRequests& requests() const { return requests_; }
  const AsyncCallbacks& callbacks() const { return caller_->calls(); }

 private:
  AsyncApi(net::EventLoop& loop, net::HttpServer& server, RelayApi& relay,
           const RouterConfig& config, std::unique_ptr<AsyncDatabase> database);

  void submit(net::ExchangeId client, net::HttpRequest& request);
  void tell(net::ExchangeId client, const net::HttpRequest& request);
  void cancel(net::ExchangeId client, const net::HttpRequest& request);
  void refuse(net::ExchangeId client, const net::ApiError& error);
  // The name of who asks; nothing: it was denied, and answered.
  std::optional<std::string> tenant_of(net::ExchangeId client, const net::HttpRequest& request);

  void start_all();
  void start(const AsyncRow& row);
  // Of `row`, its body may be missing.
  void end(const AsyncRow& row, AsyncAnswer answer);
  // Answers that came before it are gone.
  void expire();

  net::EventLoop& loop_;
  net::HttpServer& server_;
  RelayApi& relay_;
  const AsyncConfig config_;
  AsyncRequests requests_;
  std::map<std::string, net::ExchangeId> exchanges_;  // Of those that run, in the relay.
  uint64_t started_ = 0;
  bool draining_ = false;
  net::TimerId expiry_;
  net::TimerId patience_;  // Until workers are usable, if not those of all models.
  AsyncStore store_;
  std::unique_ptr<AsyncCaller> caller_;
};

}  // namespace pdjob::router
