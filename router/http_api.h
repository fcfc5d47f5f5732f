// HttpApi: the router's HTTP server. It sends OpenAI's generating endpoints to workers
// (relay_api.h), through the cache if there is one (cache_api.h). It answers queries about models,
// health, metrics and workers itself. It refuses everything else, with an error in OpenAI's format.
// Loop-bound.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/result.h"
#include "net/http/http_server.h"
#include "net/loop/loop.h"
#include "net/outbound/outbound_client.h"
#include "router/async/async_api.h"
#include "router/audit/audit_api.h"
#include "router/batches/batch_relay.h"
#include "router/cache/cache_api.h"
#include "router/control/adapter_orders.h"
#include "router/control/control_api.h"
#include "router/kserve/kserve_api.h"
#include "router/members/members_watch.h"
#include "router/relay/client_sinks.h"
#include "router/relay/relay_api.h"

namespace pdjob::router {

class HttpApi final : public net::HttpHandler {
 public:
  // Serves at once. `make_client` makes the clients that reach embedders, callbacks and collectors
  // of traces, if `config` has any. Calls `on_drained` once the core has emitted Drained and no
  // callback is under way.
  static Result<std::unique_ptr<HttpApi>> open(net::Loop& loop,
                                               const net::MakeOutboundClient& make_client,
                                               const RouterConfig& config,
                                               const net::HttpServerOptions& options,
                                               std::function<void()> on_drained);

  // Its routes, as methods and paths, for the reference page. Optional parts have more.
  static std::vector<std::pair<std::string_view, std::string_view>> routes();

  // Refuses new requests; `on_drained` is called when the last request has ended.
  void drain();

  // Takes the orders of trainers, at the address that `door` says. Before the first request.
  Status take_orders(const ControlDoor& door, std::function<void(const net::OrderAsked&)> send);
  // The launcher's answer to an order.
  void answered(const net::OrderAnswered& answer);

  // Asynchronous requests that wait for their turn.
  size_t async_queued() const { return async_ ? async_->requests().queued() : 0; }

  RelayApi& relay() { return *relay_; }
  MembersWatch& members() { return *members_; }
  net::HttpServer& server() { return *server_; }

  // Identifies the tenant and decides whether the request may come in, before its body is read.
  std::optional<net::EarlyReply> on_head(net::HttpRequest& request) override;
  void on_request(net::ExchangeId id, net::HttpRequest& request) override;
  void on_body(net::ExchangeId id, std::string_view bytes, net::BodyPart part) override;
  void on_client_gone(net::ExchangeId id) override;
  void on_writable(net::ExchangeId id) override;

 private:
  explicit HttpApi(net::Loop& loop) : loop_(loop), began_(loop.unix_seconds()) {}

  void route(net::ExchangeId id, net::HttpRequest& request, bool generates);
  // Sends it to a worker, if the cache has no answer.
  void relay(RequestId id, net::HttpRequest& request, RequestBody body, bool generates,
             std::unique_ptr<ReplySink> sink);
  // True for a POST that pdjob does not know, but that a worker serves or served.
  bool passes(const net::HttpRequest& request) const;
  // Sends it to a worker, unread.
  void pass(net::ExchangeId id, net::HttpRequest& request);
  void abort(net::ExchangeId id, const net::HttpRequest& request);
  void order_adapter(net::ExchangeId id, const net::HttpRequest& request);
  void route_batch(net::ExchangeId id, const net::HttpRequest& request);
  void refuse(net::ExchangeId id, const openai::ApiError& error);
  // With tenants, checks that one of them asks. Returns false if the request is denied, and answers
  // it.
  bool knows(net::ExchangeId id, const net::HttpRequest& request);
  void reply_json(net::ExchangeId id, int status, const std::string& body);
  void reply_models(net::ExchangeId id, const net::HttpRequest& request);
  void reply_health(net::ExchangeId id);
  void reply_workers(net::ExchangeId id);
  void reply_metrics(net::ExchangeId id);

  net::Loop& loop_;
  const int64_t began_;  // Unix seconds.
  std::unique_ptr<net::HttpServer> server_;
  std::optional<ClientSinks> clients_;  // Empty until the server is open.
  std::unique_ptr<RelayApi> relay_;
  std::unique_ptr<MembersWatch> members_;
  std::optional<AdapterOrders> adapters_;  // Empty until the server is open; so is the next one.
  std::optional<KserveApi> kserve_;
  bool open_adapters_ = false;
  std::unique_ptr<AuditApi> audit_;  // If the config has one; so are the next two.
  std::unique_ptr<CacheApi> cache_;
  std::unique_ptr<AsyncApi> async_;
  std::unique_ptr<BatchRelay> batches_;  // If the job has a Batch API.
  std::optional<OrderDesk> desk_;        // Of a rollout job; so are the next two.
  std::optional<ControlApi> control_;
  std::unique_ptr<net::HttpServer> control_server_;  // If orders have an address of their own.
};

}  // namespace pdjob::router
