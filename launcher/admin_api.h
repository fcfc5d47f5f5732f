// AdminApi: the launcher's own HTTP server: /status (text with ?as=text), /plan, /metrics, /health.
// It listens on loopback only, and no request changes the job. Loop-bound.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "common/result.h"
#include "net/http/http_server.h"
#include "net/loop/loop.h"

namespace pdjob::launcher {

// The sources of its answers.
struct AdminPages {
  std::function<std::string()> status_json;
  std::function<std::string()> status_text;
  std::function<std::string()> plan_json;
  std::function<std::string()> metrics;
  std::function<bool()> ready;
};

class AdminApi final : net::HttpHandler {
 public:
  // `listen`: "127.0.0.1:0".
  static Result<std::unique_ptr<AdminApi>> open(net::Loop& loop, const std::string& listen,
                                                AdminPages pages);

  std::string address() const { return "127.0.0.1:" + std::to_string(server_->port()); }

 private:
  explicit AdminApi(AdminPages pages) : pages_(std::move(pages)) {}

  void on_request(net::ExchangeId id, net::HttpRequest& request) override;
  void on_client_gone(net::ExchangeId /*id*/) override {}

  const AdminPages pages_;
  std::unique_ptr<net::HttpServer> server_;
};

}  // namespace pdjob::launcher
