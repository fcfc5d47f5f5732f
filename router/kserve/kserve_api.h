// KserveApi answers KServe's Open Inference Protocol (v2), for clients of Triton: metadata and
// health itself, and requests to infer as completions. Loop-bound.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "net/http/http_server.h"
#include "openai/kserve/kserve_path.h"
#include "router/relay/client_sinks.h"
#include "router/relay/relay_api.h"

namespace pdjob::router {

class KserveApi {
 public:
  // Takes over a completion, and answers it.
  using Generate =
      std::function<void(RequestId, net::HttpRequest&, RequestBody, std::unique_ptr<ReplySink>)>;

  // The first three must outlive it.
  KserveApi(net::HttpServer& server, RelayApi& relay, ClientSinks& clients, Generate generate)
      : server_(server), relay_(relay), clients_(clients), generate_(std::move(generate)) {}

  // As methods and paths, for the reference page.
  static std::vector<std::pair<std::string_view, std::string_view>> routes();
  static bool takes(std::string_view path) {
    return path == openai::kKservePath || path.starts_with("/v2/");
  }

  // As those of net::HttpHandler. Require: takes(request.path).
  std::optional<net::EarlyReply> on_head(net::HttpRequest& request);
  void on_request(net::ExchangeId id, net::HttpRequest& request);

 private:
  void describe(net::ExchangeId id, const openai::KservePath& path);
  void infer(net::ExchangeId id, const net::HttpRequest& request, const std::string& model);
  // Refuses it, unless it is there.
  bool has_model(net::ExchangeId id, const openai::KservePath& path);
  void refuse(net::ExchangeId id, const openai::ApiError& error);
  static net::EarlyReply in_own_words(net::EarlyReply reply);

  net::HttpServer& server_;
  RelayApi& relay_;
  ClientSinks& clients_;
  const Generate generate_;
};

}  // namespace pdjob::router
