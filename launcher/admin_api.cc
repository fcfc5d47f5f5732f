#include "launcher/admin_api.h"

#include <string_view>
#include <utility>
#include <vector>

#include "common/limits.h"
#include "common/parse_number.h"
#include "launcher/dashboard/dashboard.h"
#include "net/http/http_client.h"
#include "net/http/reply_head.h"

namespace pdjob::launcher {

namespace {
constexpr size_t kBodyBytesMax = limits::kConfigBytesMax + 4096;  // A job file and its path.
// A request with a wrong key waits so long for its 401. While so many wait, others get 429 at once.
constexpr Duration kRefusedAfter = std::chrono::seconds(1);
constexpr size_t kRefusedMax = 64;
constexpr const char* kMetrics = "text/plain; version=0.0.4; charset=utf-8";
}  // namespace

AdminApi::AdminApi(net::Loop& loop, std::string host, AdminPages pages, AdminGuard guard)
    : loop_(loop),
      host_(std::move(host)),
      pages_(std::move(pages)),
      guard_(std::move(guard)),
      owner_({pages_.owner_key}),
      visitors_({guard_.key, guard_.key.empty() ? "" : pages_.owner_key}) {}

AdminApi::~AdminApi() { loop_.cancel(refusing_); }

Result<std::unique_ptr<AdminApi>> AdminApi::open(net::Loop& loop, const std::string& listen,
                                                 AdminPages pages, AdminGuard guard) {
  PDJOB_TRY(const net::HttpAddress address, net::parse_http_address(listen));
  const std::string host = guard.key.empty() ? "127.0.0.1" : address.host;
  std::unique_ptr<AdminApi> api(new AdminApi(loop, host, std::move(pages), std::move(guard)));
  net::HttpServerOptions options;
  options.host = host;
  options.port = address.port;
  options.tls = api->guard_.tls;
  options.own_names_only = api->guard_.key.empty();
  options.body_bytes_max = kBodyBytesMax;
  options.connections_max = limits::kAdminConnectionsMax;
  PDJOB_TRY(api->server_, net::HttpServer::open(loop, *api, options));
  return api;
}

// "process=NAME" or "process=NAME&from=BYTE"; names need no escapes.
void AdminApi::answer_log(net::ExchangeId id, const net::HttpRequest& request) {
  if (!owner_.opens(request.header("authorization"))) {
    server_->reply(id, 401, kAdminText, "logs want the key in launcher.json of the job's folder\n");
    return;
  }
  constexpr std::string_view kProcess = "process=";
  constexpr std::string_view kFrom = "&from=";
  std::string_view query = request.query;
  const size_t at = query.find(kFrom);
  std::optional<uint64_t> from;
  if (at != std::string_view::npos) {
    from = parse_number<uint64_t>(query.substr(at + kFrom.size()));
  }
  if (!query.starts_with(kProcess) || (at != std::string_view::npos && !from)) {
    server_->reply(id, 400, kAdminText, "ask /logs?process=NAME&from=BYTE\n");
    return;
  }
  const std::string_view name = query.substr(0, at).substr(kProcess.size());
  pages_.log(std::string(name), from, [this, id](const Result<std::string>& piece) {
    const bool busy = !piece && piece.error().code == ErrorCode::kOverloaded;
    piece ? server_->reply(id, 200, kAdminText, *piece)
          : server_->reply(id, busy ? 503 : 404, kAdminText, piece.error().message + "\n");
  });
}

AdminPages::TextDone AdminApi::reply_with_metrics(net::ExchangeId id) {
  return [this, id](const Result<std::string>& page) {
    if (page) {
      return server_->reply(id, 200, kMetrics, *page);
    }
    const bool unknown = page.error().code == ErrorCode::kInvalidArgument;
    server_->reply(id, unknown ? 404 : 503, kAdminText, page.error().message + "\n");
  };
}

void AdminApi::answer_metrics(net::ExchangeId id, const net::HttpRequest& request) {
  constexpr std::string_view kName = "name=";
  if (request.path == "/metrics") {
    server_->reply(id, 200, kMetrics, pages_.metrics());
  } else if (request.path == "/metrics/all") {
    pages_.all_metrics(reply_with_metrics(id));
  } else if (request.path == "/metrics/process" && request.query.starts_with(kName)) {
    pages_.process_metrics(request.query.substr(kName.size()), reply_with_metrics(id));
  } else {
    server_->reply(id, 404, kAdminText,
                   "here are: /metrics /metrics/all /metrics/process?name=NAME\n");
  }
}

bool AdminApi::take_order(net::ExchangeId id, const net::HttpRequest& request) {
  const auto order = pages_.orders.find(request.path);
  if (request.method != "POST" || order == pages_.orders.end()) {
    return false;
  }
  if (!owner_.opens(request.header("authorization"))) {
    server_->reply(id, 401, kAdminText,
                   "orders want the key in launcher.json of the job's folder\n");
    return true;
  }
  const Result<std::string> taken = order->second(request.body);
  const bool wrong = !taken && taken.error().code == ErrorCode::kInvalidArgument;
  taken ? server_->reply(id, 200, request.path == "/diff" ? kAdminText : kAdminJson, *taken)
        : server_->reply(id, wrong ? 400 : 409, kAdminText, taken.error().message + "\n");
  return true;
}

// The dashboard's own files have no secrets; they ask for the key.
bool AdminApi::lets_in(const net::HttpRequest& request) const {
  return visitors_.opens(request.header("authorization")) ||
         (request.method == "GET" && dashboard_file(request.path));
}

// Few wrong keys can be tried: each waits, and only so many wait at once.
void AdminApi::refuse(net::ExchangeId id) {
  if (refused_.size() >= kRefusedMax) {
    return server_->reply(id, 429, kAdminText, "too many wrong keys\n", {{"Retry-After", "1"}});
  }
  refused_.emplace_back(loop_.now() + kRefusedAfter, id);
  if (refused_.size() == 1) {
    refusing_ = loop_.call_at(refused_.front().first, [this] { answer_refused(); });
  }
}

void AdminApi::answer_refused() {
  while (!refused_.empty() && refused_.front().first <= loop_.now()) {
    server_->reply(refused_.front().second, 401, kAdminText, "this address wants its key\n",
                   {{"WWW-Authenticate", "Bearer"}});
    refused_.pop_front();
  }
  if (!refused_.empty()) {
    refusing_ = loop_.call_at(refused_.front().first, [this] { answer_refused(); });
  }
}

void AdminApi::on_request(net::ExchangeId id, net::HttpRequest& request) {
  if (!lets_in(request)) {
    refuse(id);
  } else if (take_order(id, request) || (request.method == "GET" && answer_page(id, request))) {
    return;
  } else if (request.method != "GET") {
    std::vector<std::string_view> methods;
    if (request.path != "/diff") {
      methods.emplace_back("GET");
    }
    if (pages_.orders.contains(request.path)) {
      methods.emplace_back("POST");
    }
    std::string text = "only GET, and POST";
    for (const auto& [path, order] : pages_.orders) {
      text += " " + path;
    }
    server_->reply(id, 405, kAdminText, text + "\n", {net::allow_header(methods)});
  } else if (const auto file = dashboard_file(request.path)) {
    server_->reply(id, 200, file->content_type, file->text, dashboard_headers());
  } else {
    server_->reply(id, 404, kAdminText, std::string("here are: ") + pages_.here);
  }
}

bool AdminApi::answer_page(net::ExchangeId id, const net::HttpRequest& request) {
  auto page = pages_.pages.find(std::string(request.path) + '?' + std::string(request.query));
  if (page == pages_.pages.end()) {
    page = pages_.pages.find(request.path);
  }
  if (page != pages_.pages.end()) {
    server_->reply(id, 200, page->second.type, page->second.make());
  } else if (request.path == "/logs") {
    answer_log(id, request);
  } else if (request.path.starts_with("/metrics")) {
    answer_metrics(id, request);
  } else if (request.path == "/sd") {
    const std::string_view host = request.header("host");
    server_->reply(id, 200, kAdminJson,
                   pages_.discovery_json(host.empty() ? address() : std::string(host),
                                         guard_.tls != nullptr ? "https" : "http"));
  } else if (request.path == "/health") {
    const bool ready = pages_.ready();
    server_->reply(id, ready ? 200 : 503, kAdminText, ready ? "ready\n" : "not ready\n");
  } else {
    return false;
  }
  return true;
}

}  // namespace pdjob::launcher
