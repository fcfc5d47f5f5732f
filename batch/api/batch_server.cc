#include "batch/api/batch_server.h"

#include <algorithm>
#include <utility>

#include "common/limits.h"
#include "net/http/reply_head.h"
#include "openai/headers.h"
#include "openai/reply_error.h"

namespace pdjob::batch {
namespace {

constexpr std::string_view kFiles = "/v1/files";
constexpr std::string_view kBatches = "/v1/batches";
constexpr std::string_view kMetrics = "/metrics";
constexpr std::string_view kHealth = "/health";

bool is_upload(const net::HttpRequest& request) {
  return request.method == "POST" && request.path == kFiles;
}

// Returns the rest of the path behind `prefix`: empty, or "/..."; nothing if the path is another
// one.
std::optional<std::string_view> behind(std::string_view path, std::string_view prefix) {
  if (!path.starts_with(prefix)) {
    return std::nullopt;
  }
  const std::string_view rest = path.substr(prefix.size());
  return rest.empty() || rest.front() == '/' ? std::optional(rest) : std::nullopt;
}

// "/ID/word" as its two parts; the word may be missing.
std::pair<std::string, std::string_view> split(std::string_view rest) {
  rest.remove_prefix(1);
  const size_t slash = std::min(rest.find('/'), rest.size());
  return {std::string(rest.substr(0, slash)), rest.substr(std::min(slash + 1, rest.size()))};
}

}  // namespace

Result<std::unique_ptr<BatchServer>> BatchServer::open(
    net::Loop& loop, const BatchServerOptions& options,
    std::function<void(const std::string&)> broken) {
  std::unique_ptr<BatchServer> made(new BatchServer(options));
  const BatchApiConfig& config = made->options_.config;
  PDJOB_TRY(made->books_, Books::open(loop, config.dir, std::move(broken)));
  PDJOB_TRY(made->server_, net::HttpServer::open(loop, *made, options.http));
  made->files_ = std::make_unique<FilesApi>(loop, *made->server_, *made->books_, config);
  made->lives_ = std::make_unique<LiveBatches>(
      loop, *made->books_, config, options.rows,
      [files = made->files_.get()] {
        return DiskRoom{.full = files->disk_full(), .full_tenants = files->full_tenants()};
      },
      options.lifecycle);
  made->batches_ =
      std::make_unique<BatchesApi>(loop, *made->server_, *made->books_, *made->lives_, config);
  made->files_->start();
  made->lives_->start();
  return made;
}

void BatchServer::drain(std::function<void()> drained) {
  server_->stop_accepting();
  lives_->drain(std::move(drained));
}

std::optional<net::EarlyReply> BatchServer::on_head(net::HttpRequest& request) {
  if (request.path == kMetrics || request.path == kHealth) {
    request.body_bytes_max = limits::kHttpKeylessBodyBytesMax;
    return std::nullopt;
  }
  if (!check_.opens(request.header("authorization"))) {
    return net::EarlyReply{
        .status = 401,
        .body = openai::error_body(openai::invalid_request("This address is for the job's routers",
                                                           "", "invalid_api_key", 401))};
  }
  if (is_upload(request)) {
    request.streams = true;
    request.body_bytes_max = options_.config.file_bytes_max + limits::kFormBytesMax;
  } else {
    request.body_bytes_max = limits::kBatchBodyBytesMax;
  }
  return std::nullopt;
}

void BatchServer::on_request(net::ExchangeId id, net::HttpRequest& request) {
  const std::string tenant(request.header(openai::header::kBatchTenant));
  if (const auto file = behind(request.path, kFiles)) {
    route_file(id, request, tenant, *file);
  } else if (const auto batch = behind(request.path, kBatches)) {
    route_batch(id, request, tenant, *batch);
  } else if (request.path == kMetrics && request.method == "GET") {
    reply_metrics(id);
  } else if (request.path == kHealth && request.method == "GET") {
    server_->reply(id, 200, "application/json", R"({"status":"ok"})");
  } else {
    const bool known = request.path == kMetrics || request.path == kHealth;
    refuse_route(id, request, known ? Methods{"GET"} : Methods{});
  }
}

void BatchServer::reply_metrics(net::ExchangeId id) {
  BatchMetrics::Now now{.totals = lives_->totals(),
                        .alive = {},
                        .ended = lives_->ended(),
                        .failures = lives_->failures(),
                        .rows_in_flight = lives_->rows_in_flight(),
                        .file_bytes = books_->file_bytes(),
                        .batch_bytes = files_->batch_bytes(),
                        .uploads = files_->uploads(),
                        .downloads = files_->downloads()};
  now.files = books_->files().size();
  books_->batches().for_each([&](const BatchRecord& batch) {
    if (!batch.ended()) {
      ++now.alive[batch.state];
    }
  });
  server_->reply(id, 200, "text/plain; version=0.0.4; charset=utf-8", metrics_.text(now));
}

void BatchServer::refuse_route(net::ExchangeId id, const net::HttpRequest& request,
                               const Methods& methods) {
  const std::string what = std::string(request.method) + ' ' + std::string(request.path);
  if (methods.empty()) {
    return openai::reply_error(
        *server_, id, openai::invalid_request("Invalid URL: " + what, "", "not_found", 404));
  }
  openai::reply_error(
      *server_, id,
      openai::invalid_request("Method not allowed: " + what, "", "method_not_allowed", 405),
      {net::allow_header(methods)});
}

void BatchServer::route_file(net::ExchangeId id, const net::HttpRequest& request,
                             const std::string& tenant, std::string_view rest) {
  const bool reads = request.method == "GET";
  if (rest.empty()) {
    return is_upload(request) ? files_->upload(id, tenant, request)
           : reads            ? files_->list(id, tenant, request.query)
                              : refuse_route(id, request, {"GET", "POST"});
  }
  const auto [file, word] = split(rest);
  if (word.empty() && (reads || request.method == "DELETE")) {
    return reads ? files_->tell(id, tenant, file) : files_->erase(id, tenant, file);
  }
  if (word == "content" && reads) {
    return files_->content(id, tenant, file, request.is_head);
  }
  refuse_route(id, request,
               word.empty()        ? Methods{"GET", "DELETE"}
               : word == "content" ? Methods{"GET"}
                                   : Methods{});
}

void BatchServer::route_batch(net::ExchangeId id, net::HttpRequest& request,
                              const std::string& tenant, std::string_view rest) {
  const bool reads = request.method == "GET";
  const bool posts = request.method == "POST";
  if (rest.empty()) {
    return posts   ? batches_->create(id, tenant, std::move(request.body))
           : reads ? batches_->list(id, tenant, request.query)
                   : refuse_route(id, request, {"GET", "POST"});
  }
  const auto [batch, word] = split(rest);
  if (word.empty() && reads) {
    return batches_->tell(id, tenant, batch);
  }
  if (word == "cancel" && posts) {
    return batches_->cancel(id, tenant, batch);
  }
  refuse_route(id, request,
               word.empty()       ? Methods{"GET"}
               : word == "cancel" ? Methods{"POST"}
                                  : Methods{});
}

void BatchServer::on_body(net::ExchangeId id, std::string_view bytes, net::BodyPart part) {
  files_->on_body(id, bytes, part);
}

void BatchServer::on_client_gone(net::ExchangeId id) { files_->client_gone(id); }

void BatchServer::on_writable(net::ExchangeId id) { files_->client_writable(id); }

}  // namespace pdjob::batch
