// ControlApi: takes a trainer's orders over HTTP (control_words.h), has the launcher carry them out
// (order_desk.h), and answers. It has a server of its own, or answers for the router's. Every call
// wants the control key, except of health. Loop-bound.
#pragma once

#include <cstddef>
#include <functional>
#include <string_view>

#include "common/crypto/job_keys.h"
#include "net/http/http_server.h"
#include "net/loop/loop.h"
#include "router/config/router_config.h"
#include "router/control/control_words.h"
#include "router/control/order_desk.h"
#include "router/core/router.h"

namespace pdjob::router {

inline constexpr size_t kControlBodyBytesMax = size_t{64} * 1024;  // Of one order's request.

class ControlApi final : public net::HttpHandler {
 public:
  // All must outlive it.
  ControlApi(net::Loop& loop, OrderDesk& desk, const Router& core, const ControlDoor& door)
      : loop_(loop),
        desk_(desk),
        core_(core),
        key_({door.key}),
        own_address_(!door.same_address),
        began_(loop.unix_seconds()) {}

  // Where it answers. Before the first request.
  void attach(net::HttpServer& server) { server_ = &server; }
  bool takes(std::string_view path) const;

  std::optional<net::EarlyReply> on_head(net::HttpRequest& request) override;
  void on_request(net::ExchangeId id, net::HttpRequest& request) override;
  void on_client_gone(net::ExchangeId /*id*/) override {}  // The order goes on.

 private:
  ControlFacts facts() const;
  void reply(net::ExchangeId id, const ControlReply& reply);
  void reply_loads(net::ExchangeId id);
  void reply_workers(net::ExchangeId id, const net::HttpRequest& request);
  void reply_health(net::ExchangeId id);
  void reply_models(net::ExchangeId id);

  net::Loop& loop_;
  OrderDesk& desk_;
  const Router& core_;
  const KeyCheck key_;
  const bool own_address_;
  const int64_t began_;  // Unix seconds.
  net::HttpServer* server_ = nullptr;
};

}  // namespace pdjob::router
