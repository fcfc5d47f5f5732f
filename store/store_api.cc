#include "store/store_api.h"

#include <array>
#include <string_view>
#include <utility>

#include "common/limits.h"
#include "net/http/reply_head.h"
#include "openai/openai.h"
#include "openai/reply_error.h"

namespace pdjob::store {
namespace {

constexpr std::string_view kHealth = "/health";
constexpr std::string_view kMetrics = "/metrics";
constexpr std::array<std::string_view, 1> kMethods = {"GET"};

}  // namespace

Result<std::unique_ptr<StoreApi>> StoreApi::open(net::Loop& loop,
                                                 const net::HttpServerOptions& options,
                                                 const std::string& key,
                                                 std::function<std::string()> metrics) {
  std::unique_ptr<StoreApi> made(new StoreApi(key, std::move(metrics)));
  PDJOB_TRY(made->server_, net::HttpServer::open(loop, *made, options));
  return made;
}

std::optional<net::EarlyReply> StoreApi::on_head(net::HttpRequest& request) {
  request.body_bytes_max = limits::kHttpKeylessBodyBytesMax;
  if (request.path == kHealth || check_.opens(request.header("authorization"))) {
    return std::nullopt;
  }
  return net::EarlyReply{
      .status = 401,
      .body = openai::error_body(openai::invalid_request("This address is for the job's launcher",
                                                         "", "invalid_api_key", 401))};
}

void StoreApi::on_request(net::ExchangeId id, net::HttpRequest& request) {
  const std::string what = std::string(request.method) + ' ' + std::string(request.path);
  if (request.path != kHealth && request.path != kMetrics) {
    return openai::reply_error(
        *server_, id, openai::invalid_request("Invalid URL: " + what, "", "not_found", 404));
  }
  if (request.method != kMethods.front()) {
    return openai::reply_error(
        *server_, id,
        openai::invalid_request("Method not allowed: " + what, "", "method_not_allowed", 405),
        {net::allow_header(kMethods)});
  }
  if (request.path == kHealth) {
    return server_->reply(id, 200, "application/json", R"({"status":"ok"})");
  }
  server_->reply(id, 200, "text/plain; version=0.0.4; charset=utf-8", metrics_());
}

}  // namespace pdjob::store
