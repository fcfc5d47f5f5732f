// AsyncApi: requests that nobody waits for. A client submits one, is told its id as soon as it is
// stored, and asks for the answer by that id later. What a router had not answered when it died,
// the next one with the same file runs again. Loop-bound.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "net/event_loop.h"
#include "net/http_server.h"
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

  // Takes the request over, if it is one of these. False: it is not.
  bool route(net::ExchangeId client, net::HttpRequest& request);
  // No more are started; those that run may end.
  void drain() { draining_ = true; }

  const AsyncRequests& requests() const { return requests_; }

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
  void end(const std::string& id, AsyncAnswer answer);
  // Answers that came before it are gone.
  int64_t oldest_kept() const;
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
  net::TimerId patience_;  // No worker is usable.
  AsyncStore store_;
};

}  // namespace pdjob::router
