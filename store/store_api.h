// StoreApi: the HTTP server of a store. GET /health needs no key, GET /metrics does. Blocks travel
// on KV links only. Loop-bound.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "common/crypto/job_keys.h"
#include "common/result.h"
#include "net/http/http_server.h"
#include "net/loop/loop.h"

namespace pdjob::store {

class StoreApi final : public net::HttpHandler {
 public:
  // `key`: empty, every client is served. `metrics` returns the text of now.
  static Result<std::unique_ptr<StoreApi>> open(net::Loop& loop,
                                                const net::HttpServerOptions& options,
                                                const std::string& key,
                                                std::function<std::string()> metrics);

  net::HttpServer& http() { return *server_; }

  std::optional<net::EarlyReply> on_head(net::HttpRequest& request) override;
  void on_request(net::ExchangeId id, net::HttpRequest& request) override;
  void on_client_gone(net::ExchangeId /*id*/) override {}

 private:
  StoreApi(const std::string& key, std::function<std::string()> metrics)
      : check_({key}), metrics_(std::move(metrics)) {}

  const KeyCheck check_;
  const std::function<std::string()> metrics_;
  std::unique_ptr<net::HttpServer> server_;
};

}  // namespace pdjob::store
