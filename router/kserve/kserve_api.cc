#include "router/kserve/kserve_api.h"

#include <algorithm>
#include <array>
#include <utility>

#include "common/limits.h"
#include "common/parse_number.h"
#include "net/http/reply_head.h"
#include "openai/kserve/infer_reply.h"
#include "openai/kserve/infer_request.h"
#include "router/core/model_cards.h"
#include "router/kserve/kserve_sink.h"

namespace pdjob::router {
namespace {

using openai::KserveEnd;
using openai::KservePath;

constexpr std::string_view kCompletions = "/v1/completions";

openai::ApiError not_found(const std::string& what) {
  return openai::invalid_request(what, "", "not_found", 404);
}

// How much of the body is JSON. Empty: the header is no number.
std::optional<size_t> json_bytes_of(const net::HttpRequest& request) {
  const std::string_view said = request.header(openai::kInferJsonBytes);
  return said.empty() ? request.body.size() : parse_number<size_t>(said);
}

// The completion that it becomes. Its body is elsewhere.
net::HttpRequest completion_of(const net::HttpRequest& request) {
  net::HttpRequest completion{.method = "POST",
                              .path = kCompletions,
                              .headers = request.headers,
                              .account = request.account,
                              .body_bytes_max = request.body_bytes_max};
  std::erase_if(completion.headers, [](const net::HttpHeader& header) {
    return net::equal_ignoring_case(header.name, "content-type") ||
           net::equal_ignoring_case(header.name, openai::kInferJsonBytes);
  });
  completion.headers.push_back({"Content-Type", "application/json"});
  return completion;
}

}  // namespace

std::vector<std::pair<std::string_view, std::string_view>> KserveApi::routes() {
  return {
      {"GET", "/v2"},           {"GET", "/v2/health/live"},     {"GET", "/v2/health/ready"},
      {"GET", "/v2/models/ID"}, {"GET", "/v2/models/ID/ready"}, {"POST", "/v2/models/ID/infer"}};
}

net::EarlyReply KserveApi::in_own_words(net::EarlyReply reply) {
  reply.body = openai::infer_error(reply.body);
  return reply;
}

std::optional<net::EarlyReply> KserveApi::on_head(net::HttpRequest& request) {
  const auto path = openai::parse_kserve_path(request.path);
  if (!path || !path->posts() || request.method != "POST") {
    request.body_bytes_max = std::min(request.body_bytes_max, limits::kHttpKeylessBodyBytesMax);
    return std::nullopt;
  }
  auto denied = relay_.reception().let_in(request);
  return denied ? std::optional(in_own_words(*std::move(denied))) : std::nullopt;
}

void KserveApi::on_request(net::ExchangeId id, net::HttpRequest& request) {
  const auto path = openai::parse_kserve_path(request.path);
  if (!path) {
    return refuse(id, not_found("Invalid URL: " + std::string(request.path)));
  }
  const std::string_view method = path->posts() ? "POST" : "GET";
  if (request.method != method) {
    const auto error = openai::invalid_request(
        "Method not allowed: " + std::string(request.method) + ' ' + std::string(request.path), "",
        "method_not_allowed", 405);
    return server_.reply(id, error.status, "application/json",
                         openai::infer_error(openai::error_body(error)),
                         {net::allow_header(std::array{method})});
  }
  switch (path->end) {
    case KserveEnd::kLive:
      return server_.reply(id, 200, "application/json", "");
    case KserveEnd::kReady:
      return server_.reply(id, relay_.core().usable() ? 200 : 503, "application/json", "");
    case KserveEnd::kInfer:
      return has_model(id, *path) ? infer(id, request, path->model) : void();
    case KserveEnd::kServer:
    case KserveEnd::kModel:
    case KserveEnd::kModelReady:
      break;
  }
  const auto known = relay_.reception().identify(request);
  if (const auto* denial = std::get_if<Admission::Denial>(&known)) {
    const net::EarlyReply reply = in_own_words(relay_.reception().denied(*denial));
    return server_.reply(id, reply.status, "application/json", reply.body, reply.headers);
  }
  describe(id, *path);
}

void KserveApi::describe(net::ExchangeId id, const KservePath& path) {
  if (path.end == KserveEnd::kServer) {
    return server_.reply(id, 200, "application/json", openai::kserve_server_body());
  }
  if (!has_model(id, path)) {
    return;
  }
  if (path.end == KserveEnd::kModel) {
    return server_.reply(id, 200, "application/json", openai::kserve_model_body(path.model));
  }
  server_.reply(id, relay_.core().would_wait(path.model) ? 503 : 200, "application/json", "");
}

bool KserveApi::has_model(net::ExchangeId id, const KservePath& path) {
  if (std::ranges::count(model_cards(relay_.core(), 0), path.model, &openai::ModelCard::id) == 0) {
    refuse(id, not_found("The model `" + path.model + "` does not exist."));
    return false;
  }
  if (!path.version.empty() && path.version != openai::kKserveVersion) {
    refuse(id, not_found("The model `" + path.model + "` has no version " + path.version +
                         ", only version " + std::string(openai::kKserveVersion) + "."));
    return false;
  }
  return true;
}

void KserveApi::infer(net::ExchangeId id, const net::HttpRequest& request,
                      const std::string& model) {
  const auto json_bytes = json_bytes_of(request);
  if (!json_bytes) {
    return refuse(id, openai::invalid_request("Inference-Header-Content-Length is no number"));
  }
  auto parsed = openai::parse_infer(model, request.body, *json_bytes);
  if (!parsed) {
    return refuse(id, parsed.error());
  }
  auto body = RequestBody::scan(std::move(parsed->completion));
  if (!body) {
    return refuse(id, body.error());
  }
  net::HttpRequest completion = completion_of(request);
  const RequestId request_id = relay_.next_id();
  generate_(request_id, completion, *std::move(body),
            std::make_unique<KserveSink>(*std::move(parsed), clients_.open(id, request_id)));
}

void KserveApi::refuse(net::ExchangeId id, const openai::ApiError& error) {
  server_.reply(id, error.status, "application/json",
                openai::infer_error(openai::error_body(error)));
}

}  // namespace pdjob::router
