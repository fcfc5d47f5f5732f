// AsyncApi: asynchronous requests, for which no connection waits. A client submits a request and
// gets its id as soon as it is stored. It fetches the answer by that id later, or a callback
// delivers it. After a router dies, the next router with the same file runs its unanswered requests
// again. Loop-bound.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "net/http/http_server.h"
#include "net/loop/loop.h"
#include "router/async/async_caller.h"
#include "router/async/async_requests.h"
#include "router/async/async_store.h"
#include "router/relay/relay_api.h"

namespace pdjob::router {

class AsyncApi {
 public:
  // `client` makes the callbacks. Requires: `config` has a file.
  static Result<std::unique_ptr<AsyncApi>> open(net::Loop& loop, net::HttpServer& server,
                                                RelayApi& relay, const RouterConfig& config,
                                                std::unique_ptr<net::OutboundClient> client);
  ~AsyncApi();
  AsyncApi(const AsyncApi&) = delete;
  AsyncApi& operator=(const AsyncApi&) = delete;

  // True if the request is to be stored, so its body counts as its tenant's.
  static bool takes_body(const net::HttpRequest& request);
  // The methods of this path; empty: it is not of asynchronous requests.
  static std::vector<std::string_view> methods(std::string_view path);
  // Takes over asynchronous requests. Returns false for any other request.
  bool route(net::ExchangeId client, net::HttpRequest& request);
  // Stops starting requests and callbacks; running requests may end.
  void drain();
  // Calls `then` once no callback is under way. Call once, after drain().
  void when_idle(std::function<void()> then) { caller_->when_idle(std::move(then)); }

  const AsyncRequests& requests() const { return requests_; }
  const AsyncCallbacks& callbacks() const { return caller_->calls(); }

 private:
  AsyncApi(net::Loop& loop, net::HttpServer& server, RelayApi& relay, const RouterConfig& config,
           std::unique_ptr<AsyncDatabase> database);

  void submit(net::ExchangeId client, net::HttpRequest& request);
  void tell(net::ExchangeId client, const net::HttpRequest& request);
  void cancel(net::ExchangeId client, const net::HttpRequest& request);
  void refuse(net::ExchangeId client, const openai::ApiError& error);
  void deny(net::ExchangeId client, const net::EarlyReply& denial);
  // The name of the asking tenant. Empty optional: it was denied, and the denial is answered.
  std::optional<std::string> tenant_of(net::ExchangeId client, const net::HttpRequest& request);

  // The state of the workers and the store, as the core may know it.
  AsyncRequests::Outside outside() const;
  void start_all();
  // `row` is empty if it could not be read.
  void start(const std::string& id, const std::optional<AsyncRow>& row);
  void run(const AsyncRow& row, Admission::Tenant tenant, RequestBody body);
  // `row` may lack its body.
  void end(const AsyncRow& row, AsyncAnswer answer);
  // Deletes answers that are older than the TTL.
  void expire();

  net::Loop& loop_;
  net::HttpServer& server_;
  RelayApi& relay_;
  const AsyncConfig config_;
  AsyncRequests requests_;
  std::map<std::string, RequestId> running_;  // Requests in the relay, by their ids here.
  net::TimerId expiry_;
  net::TimerId next_try_;  // AsyncRequests::next_try().
  AsyncStore store_;
  std::unique_ptr<AsyncCaller> caller_;
};

}  // namespace pdjob::router
