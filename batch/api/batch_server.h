// BatchServer: the HTTP server of OpenAI's Batch API, which runs in a process of its own. Routers
// forward files and batches to it, and it runs rows as a client of those routers. /metrics and
// /health need no key. Loop-bound.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "batch/api/batch_metrics.h"
#include "batch/api/batches_api.h"
#include "batch/api/files_api.h"
#include "batch/api/live_batches.h"
#include "batch/catalog/books.h"
#include "batch/config/batch_api_config.h"
#include "batch/http_row_client.h"
#include "common/crypto/job_keys.h"
#include "common/result.h"
#include "net/http/http_server.h"
#include "net/loop/loop.h"

namespace pdjob::batch {

struct BatchServerOptions {
  BatchApiConfig config;
  net::HttpServerOptions http;
  std::string key;  // Routers show it; empty: every client is served.
  RowServer rows;   // The routers.
  LifecycleConfig lifecycle = {};
};

class BatchServer final : public net::HttpHandler {
 public:
  // `broken`: the disk failed, and the process must end; with the reason.
  static Result<std::unique_ptr<BatchServer>> open(net::Loop& loop,
                                                   const BatchServerOptions& options,
                                                   std::function<void(const std::string&)> broken);

  // Accepts no more, aborts rows in flight, and calls `drained` once no batch runs. Exchanges may
  // still be alive.
  void drain(std::function<void()> drained);
  net::HttpServer& http() { return *server_; }
  const LiveBatches& batches() const { return *lives_; }

  std::optional<net::EarlyReply> on_head(net::HttpRequest& request) override;
  void on_request(net::ExchangeId id, net::HttpRequest& request) override;
  void on_body(net::ExchangeId id, std::string_view bytes, net::BodyPart part) override;
  void on_client_gone(net::ExchangeId id) override;
  void on_writable(net::ExchangeId id) override;

 private:
  explicit BatchServer(const BatchServerOptions& options)
      : options_(options), check_({options.key}) {}
  void route_file(net::ExchangeId id, const net::HttpRequest& request, const std::string& tenant,
                  std::string_view rest);
  void route_batch(net::ExchangeId id, net::HttpRequest& request, const std::string& tenant,
                   std::string_view rest);
  void reply_metrics(net::ExchangeId id);
  // The methods that the path has; empty: there is no such path.
  using Methods = std::vector<std::string_view>;
  void refuse_route(net::ExchangeId id, const net::HttpRequest& request, const Methods& methods);

  const BatchServerOptions options_;
  const KeyCheck check_;
  std::unique_ptr<net::HttpServer> server_;
  std::unique_ptr<Books> books_;
  std::unique_ptr<FilesApi> files_;
  std::unique_ptr<LiveBatches> lives_;
  std::unique_ptr<BatchesApi> batches_;
  BatchMetrics metrics_;
};

}  // namespace pdjob::batch
