#include "router/control/control_api.h"

#include <algorithm>
#include <array>
#include <string>
#include <utility>

#include "common/json/json_writer.h"
#include "common/limits.h"
#include "openai/json/json_edit.h"
#include "openai/openai_reply.h"
#include "router/core/model_cards.h"

namespace pdjob::router {
namespace {

constexpr std::string_view kLoads = "/v1/loads";
constexpr std::string_view kWorkers = "/workers";
constexpr std::string_view kHealthGenerate = "/health_generate";
constexpr std::string_view kLiveness = "/liveness";
// Only with an address of its own: elsewhere the router answers them.
constexpr std::string_view kHealth = "/health";
constexpr std::string_view kModels = "/v1/models";

constexpr std::array<std::string_view, 1> kWorkerMembers = {"url"};

bool is_workers(std::string_view path) { return path == kWorkers || path.starts_with("/workers/"); }

bool is_health(std::string_view path) {
  return path == kHealth || path == kHealthGenerate || path == kLiveness;
}

}  // namespace

bool ControlApi::takes(std::string_view path) const {
  return own_address_ || is_control_path(path) || path == kLoads || is_workers(path) ||
         path == kHealthGenerate || path == kLiveness;
}

std::optional<net::EarlyReply> ControlApi::on_head(net::HttpRequest& request) {
  request.body_bytes_max = std::min(request.body_bytes_max, kControlBodyBytesMax);
  if (is_health(request.path) || key_.opens(request.header("authorization"))) {
    return std::nullopt;
  }
  return net::EarlyReply{
      .status = 401,
      .body = control_refusal({.status = 401,
                               .message = "a control call must show the control key: "
                                          "Authorization: Bearer KEY"})
                  .body};
}

void ControlApi::on_request(net::ExchangeId id, net::HttpRequest& request) {
  if (is_health(request.path)) {
    return reply_health(id);
  }
  if (request.method == "GET" && request.path == kLoads) {
    return reply_loads(id);
  }
  if (is_workers(request.path)) {
    return reply_workers(id, request);
  }
  if (request.method == "GET" && request.path == kModels) {
    return reply_models(id);
  }
  if (!is_control_path(request.path)) {
    return reply(id, control_refusal(
                         {.status = 404, .message = "no such call: " + std::string(request.path)}));
  }
  auto parsed = parse_control(request.method, request.path, request.query, request.body);
  if (!parsed) {
    return reply(id, control_refusal(parsed.error()));
  }
  if (const auto* nothing = std::get_if<ControlNoOp>(&*parsed)) {
    return reply(id, control_done(nothing->message));
  }
  auto& call = std::get<ControlCall>(*parsed);
  desk_.ask(std::move(call.order), [this, id, form = call.form](const net::OrderAnswered& answer) {
    reply(id, control_reply(form, answer, facts()));
  });
}

ControlFacts ControlApi::facts() const {
  ControlFacts facts;
  if (const auto models = core_.models(); !models.empty()) {
    facts.model = *models.begin();
  }
  for (const auto& [id, worker] : core_.workers().all()) {
    facts.workers.push_back({.name = worker.entry.name,
                             .role = net::to_string(worker.entry.role),
                             .standing = net::to_string(worker.entry.standing),
                             .weight_version = worker.entry.weight_version,
                             .digest = worker.entry.model_digest});
  }
  return facts;
}

void ControlApi::reply(net::ExchangeId id, const ControlReply& reply) {
  server_->reply(id, reply.status, reply.content_type, reply.body, reply.headers);
}

// Of this router. A trainer that waits for silence wants the sum to be 0.
void ControlApi::reply_loads(net::ExchangeId id) {
  ControlReply told;
  JsonWriter json(told.body);
  json.begin_object().key("loads").begin_array().begin_object();
  json.key("dp_rank").integer(0);
  json.key("num_running_reqs").integer(core_.requests_running());
  json.key("num_waiting_reqs").integer(core_.requests_queued());
  json.key("num_reqs").integer(core_.requests_alive());
  json.end_object().end_array().end_object();
  reply(id, told);
}

// The fleet as one worker: this router. A trainer may register what is there already.
void ControlApi::reply_workers(net::ExchangeId id, const net::HttpRequest& request) {
  const std::string url = "http://" + std::string(request.header("host"));
  if (request.method == "POST" && request.path == kWorkers) {
    const auto body = openai::JsonObject::scan(request.body, kWorkerMembers);
    const std::string asked =
        body ? openai::json_string(body->value("url")).value_or("") : std::string();
    return reply(id, asked == url || asked == url + '/'
                         ? control_done("this worker is here already")
                         : control_refusal({.message = "the launcher starts this job's workers; "
                                                       "all of them are behind " +
                                                       url}));
  }
  if (request.method != "GET") {
    return reply(id, control_refusal({.message = "the launcher owns this job's workers: use pdjob "
                                                 "scale, or end the job"}));
  }
  ControlReply told;
  JsonWriter json(told.body);
  json.begin_object().key("workers").begin_array().begin_object();
  json.key("id").string("pdjob");
  json.key("url").string(url);
  json.key("worker_type").string("regular");
  json.key("is_healthy").boolean(core_.serves(loop_.now()));
  json.end_object().end_array();
  json.key("total").integer(1);
  json.end_object();
  reply(id, told);
}

void ControlApi::reply_health(net::ExchangeId id) {
  if (!core_.serves(loop_.now())) {
    reply(id, {.status = 503, .body = R"({"status":"no usable pair of workers"})"});
    return;
  }
  reply(id, control_reply(ControlForm::kHealth,
                          {.workers = static_cast<uint32_t>(core_.workers().all().size())}, {}));
}

void ControlApi::reply_models(net::ExchangeId id) {
  reply(id, {.body = openai::models_body(model_cards(core_, began_))});
}

}  // namespace pdjob::router
