#include "launcher/admin_api.h"

#include <utility>

#include "net/http/http_client.h"

namespace pdjob::launcher {

namespace {
constexpr size_t kBodyBytesMax = 1024;  // Its requests need no body.
constexpr const char* kText = "text/plain; charset=utf-8";
constexpr const char* kJson = "application/json";
}  // namespace

Result<std::unique_ptr<AdminApi>> AdminApi::open(net::Loop& loop, const std::string& listen,
                                                 AdminPages pages) {
  PDJOB_TRY(const net::HttpAddress address, net::parse_http_address(listen));
  std::unique_ptr<AdminApi> api(new AdminApi(std::move(pages)));
  net::HttpServerOptions options;
  options.host = "127.0.0.1";
  options.port = address.port;
  options.body_bytes_max = kBodyBytesMax;
  PDJOB_TRY(api->server_, net::HttpServer::open(loop, *api, options));
  return api;
}

void AdminApi::on_request(net::ExchangeId id, net::HttpRequest& request) {
  if (request.method != "GET") {
    server_->reply(id, 405, kText, "only GET\n");
  } else if (request.path == "/status" && request.query == "as=text") {
    server_->reply(id, 200, kText, pages_.status_text());
  } else if (request.path == "/status") {
    server_->reply(id, 200, kJson, pages_.status_json());
  } else if (request.path == "/plan") {
    server_->reply(id, 200, kJson, pages_.plan_json());
  } else if (request.path == "/metrics") {
    server_->reply(id, 200, "text/plain; version=0.0.4; charset=utf-8", pages_.metrics());
  } else if (request.path == "/health") {
    const bool ready = pages_.ready();
    server_->reply(id, ready ? 200 : 503, kText, ready ? "ready\n" : "not ready\n");
  } else {
    server_->reply(id, 404, kText, "here are: /status /status?as=text /plan /metrics /health\n");
  }
}

}  // namespace pdjob::launcher
