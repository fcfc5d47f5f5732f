// PlainReplies: whole replies of a worker that are no generations, and refusals. Loop-bound.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "net/http/http_server.h"
#include "openai/headers.h"
#include "openai/reply_error.h"
#include "worker/api/worker_metrics.h"

namespace pdjob::worker {

inline constexpr std::string_view kJson = "application/json";

class PlainReplies {
 public:
  // `worker`: its name. All must outlive this.
  PlainReplies(net::HttpServer& server, const std::string& worker, WorkerMetrics& metrics)
      : server_(server), worker_(worker), metrics_(metrics) {}

  void json(net::ExchangeId id, std::string_view body) { server_.reply(id, 200, kJson, body); }

  void refuse(net::ExchangeId id, const openai::ApiError& error,
              std::vector<std::pair<std::string, std::string>> headers = {}) {
    metrics_.requests_failed.add();
    headers.emplace_back(openai::header::kWorker, worker_);
    if (error.code == to_string(ErrorCode::kOverloaded)) {
      headers.emplace_back("Retry-After", "1");
    }
    openai::reply_error(server_, id, error, headers);
  }

 private:
  net::HttpServer& server_;
  const std::string& worker_;
  WorkerMetrics& metrics_;
};

}  // namespace pdjob::worker
