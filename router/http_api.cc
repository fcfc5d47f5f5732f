#include "router/http_api.h"

#include <algorithm>
#include <iterator>
#include <utility>
#include <vector>

#include "common/json/json_writer.h"
#include "common/limits.h"
#include "net/http/own_names.h"
#include "net/http/reply_head.h"
#include "openai/abort_request.h"
#include "openai/headers.h"
#include "openai/openai.h"
#include "openai/openai_reply.h"
#include "openai/reply_error.h"
#include "router/core/model_cards.h"
#include "router/core/verdict.h"
#include "router/members/engine_routes.h"

namespace pdjob::router {
namespace {

enum class Endpoint {
  kGenerate,
  kAbort,
  kAdapter,
  kAnyWorker,
  kModels,
  kModel,
  kHealth,
  kMetrics,
  kWorkers,
  kMembers,
  kTimings
};

struct Route {
  std::string_view method;
  std::string_view path;
  Endpoint endpoint;
};
constexpr Route kRoutes[] = {
    {"POST", "/generate", Endpoint::kGenerate},
    {"PUT", "/generate", Endpoint::kGenerate},
    {"POST", "/inference/v1/generate", Endpoint::kGenerate},
    {"POST", "/v1/completions", Endpoint::kGenerate},
    {"POST", "/v1/chat/completions", Endpoint::kGenerate},
    {"POST", "/v1/embeddings", Endpoint::kGenerate},
    {"POST", "/v1/responses", Endpoint::kGenerate},
    {"POST", "/abort_request", Endpoint::kAbort},
    {"POST", "/abort_requests", Endpoint::kAbort},
    {"POST", "/v1/load_lora_adapter", Endpoint::kAdapter},
    {"POST", "/v1/unload_lora_adapter", Endpoint::kAdapter},
    {"POST", "/load_lora_adapter", Endpoint::kAdapter},
    {"POST", "/unload_lora_adapter", Endpoint::kAdapter},
    {"POST", "/tokenize", Endpoint::kAnyWorker},
    {"POST", "/detokenize", Endpoint::kAnyWorker},
    {"GET", "/tokenizer_info", Endpoint::kAnyWorker},
    {"GET", "/v1/models", Endpoint::kModels},
    {"GET", "/v1/models/ID", Endpoint::kModel},
    {"GET", "/health", Endpoint::kHealth},
    {"GET", "/metrics", Endpoint::kMetrics},
    {"GET", "/pdjob/workers", Endpoint::kWorkers},
    {"GET", "/pdjob/members", Endpoint::kMembers},
    {"GET", "/pdjob/timings", Endpoint::kTimings},
};

bool is_for(const Route& route, std::string_view path) {
  return route.endpoint == Endpoint::kModel ? path.starts_with(openai::kModelPath)
                                            : route.path == path;
}

openai::ApiError no_such_route(const net::HttpRequest& request, int status) {
  const std::string what = std::string(request.method) + ' ' + std::string(request.path);
  if (status == 405) {
    return openai::invalid_request("Method not allowed: " + what, "", "method_not_allowed", status);
  }
  const std::string makes =
      request.method == "POST" ? makes_that_serve(request.path) : std::string();
  if (!makes.empty()) {
    return openai::invalid_request("No worker here serves " + what +
                                       ". Workers with an engine of " + makes +
                                       " do, if their model can (engine.kind).",
                                   "", "not_found", status);
  }
  if (request.path.starts_with("/v1/responses/")) {
    return openai::invalid_request("No response is stored here: " + what, "", "not_found", 404);
  }
  return openai::invalid_request("Invalid URL: " + what, "", "not_found", status);
}

void append_load(JsonWriter& json, const Worker& worker) {
  const net::WorkerLoad& load = worker.reported;
  json.key("load").begin_object();
  json.key("requests_running").integer(load.requests_running);
  json.key("requests_queued").integer(load.requests_queued);
  json.key("tokens_queued").integer(load.tokens_queued);
  json.key("kv_rows_used").integer(load.kv_rows_used);
  json.key("kv_rows_max").integer(load.kv_rows_max);
  json.end_object();
}

void append_worker(JsonWriter& json, const Worker& worker, const KvKnowledge* kv, Instant now) {
  json.begin_object();
  json.key("name").string(worker.entry.name);
  json.key("engine_id").string(worker.entry.engine_id);
  json.key("role").string(net::to_string(worker.entry.role));
  json.key("host").string(worker.entry.host);
  json.key("port").integer(worker.entry.port);
  json.key("model").string(worker.entry.model);
  json.key("protocol").string(worker.concurrent() ? "concurrent" : "two_hop");
  json.key("standing").string(net::to_string(worker.entry.standing));
  json.key("health").string(to_string(worker.health(now)));
  json.key("failures").integer(worker.failures);
  if (worker.bad_status != 0) {
    json.key("trouble").string(answer_text(worker.bad_status));
  }
  json.key("requests_in_flight").integer(worker.requests_in_flight);
  json.key("tokens_in_flight").integer(worker.tokens_in_flight);
  append_load(json, worker);
  if (kv != nullptr && kv->listens_to(worker.id)) {
    json.key("kv_events").begin_object();
    json.key("complete").boolean(kv->is_complete(worker.id));
    json.key("blocks").integer(kv->held(worker.id));
    json.end_object();
  }
  json.end_object();
}

void append_avoided(JsonWriter& json, const WorkerTable& workers, const PairSuspicions::Pair& pair,
                    Instant now) {
  const Worker* prefill = workers.find(pair.prefill);
  const Worker* decode = workers.find(pair.decode);
  if (prefill == nullptr || decode == nullptr) {
    return;
  }
  json.begin_object();
  json.key("prefill").string(prefill->entry.name);
  json.key("decode").string(decode->entry.name);
  json.key("seconds_left").number(seconds(pair.until - now));
  json.key("why").string(why_avoided(pair.fault));
  json.key("lasts").boolean(pair.lasts);
  json.end_object();
}

// The first ones: usually there are none, or one wrong setting makes them all.
void append_pairs_without_hand_over(JsonWriter& json, const WorkerTable& workers) {
  constexpr int kShownMax = 64;
  int shown = 0;
  json.key("pairs_without_hand_over").begin_array();
  for (const auto& [prefill_id, prefill] : workers.all()) {
    for (const auto& [decode_id, decode] : workers.all()) {
      if (prefill.entry.role != net::Role::kPrefill || decode.entry.role != net::Role::kDecode ||
          shown == kShownMax) {
        continue;
      }
      if (const std::string why = why_no_hand_over(prefill.entry, decode.entry); !why.empty()) {
        json.begin_object();
        json.key("prefill").string(prefill.entry.name);
        json.key("decode").string(decode.entry.name);
        json.key("why").string(why);
        json.end_object();
        ++shown;
      }
    }
  }
  json.end_array();
}

}  // namespace

Result<std::unique_ptr<HttpApi>> HttpApi::open(net::Loop& loop,
                                               const net::MakeOutboundClient& make_client,
                                               const RouterConfig& config,
                                               const net::HttpServerOptions& options,
                                               std::function<void()> on_drained) {
  PDJOB_TRY(Policies policies, open_policies(config));
  std::unique_ptr<HttpApi> api(new HttpApi(loop));
  net::HttpServerOptions http = options;
  http.cors = {.origins = config.allowed_origins, .exposed = openai::exposed_headers()};
  PDJOB_TRY(api->server_, net::HttpServer::open(loop, *api, http));
  api->clients_.emplace(*api->server_);
  std::unique_ptr<Tracer> tracer;
  if (!config.tracing.endpoint.empty()) {
    tracer = std::make_unique<Tracer>(loop, config.tracing, make_client(config.tracing.ca_file));
  }
  api->relay_ =
      std::make_unique<RelayApi>(loop, config, std::move(policies), std::move(tracer),
                                 [opened = api.get(), then = std::move(on_drained)] {
                                   opened->async_ ? opened->async_->when_idle(then) : then();
                                 });
  if (config.audit.share > 0) {
    api->audit_ = std::make_unique<AuditApi>(loop, *api->relay_, config.audit);
  }
  if (config.cache.bytes_max > 0) {
    api->cache_ = std::make_unique<CacheApi>(loop, *api->relay_, config,
                                             make_client(config.cache.similarity.ca_file));
  }
  if (!config.async.file.empty()) {
    PDJOB_TRY(api->async_, AsyncApi::open(loop, *api->server_, *api->relay_, config,
                                          make_client(config.async.callbacks.ca_file)));
  }
  if (!config.batches.key.empty()) {
    api->batches_ = std::make_unique<BatchRelay>(loop, *api->server_, config.batches);
  }
  api->members_ = std::make_unique<MembersWatch>(loop, *api->server_);
  api->open_adapters_ = config.open_adapters;
  api->adapters_.emplace(loop, api->relay_->core(), [opened = api.get()](RouterEvent event) {
    opened->relay_->submit(std::move(event));
  });
  api->kserve_.emplace(*api->server_, *api->relay_, *api->clients_,
                       [opened = api.get()](RequestId id, net::HttpRequest& request,
                                            RequestBody body, std::unique_ptr<ReplySink> sink) {
                         opened->relay(id, request, std::move(body), /*generates=*/true,
                                       std::move(sink));
                       });
  return api;
}

Status HttpApi::take_orders(const ControlDoor& door,
                            std::function<void(const net::OrderAsked&)> send) {
  desk_.emplace(loop_, std::move(send), door.patience);
  control_.emplace(loop_, *desk_, relay_->core(), door);
  if (door.same_address) {
    control_->attach(*server_);
    return ok();
  }
  PDJOB_TRY(const net::HttpAddress listen, net::parse_http_address(door.listen));
  PDJOB_TRY(control_server_, net::HttpServer::open(loop_, *control_,
                                                   {.host = listen.host,
                                                    .port = listen.port,
                                                    .own_names_only = door.key.empty() &&
                                                                      net::is_loopback(listen.host),
                                                    .body_bytes_max = kControlBodyBytesMax}));
  control_->attach(*control_server_);
  return ok();
}

void HttpApi::answered(const net::OrderAnswered& answer) {
  if (desk_) {
    desk_->take(answer);
  }
}

std::vector<std::pair<std::string_view, std::string_view>> HttpApi::routes() {
  std::vector<std::pair<std::string_view, std::string_view>> routes;
  for (const Route& route : kRoutes) {
    routes.emplace_back(route.method, route.path);
  }
  std::ranges::copy(KserveApi::routes(), std::back_inserter(routes));
  return routes;
}

void HttpApi::drain() {
  members_->close();
  if (cache_) {
    cache_->let_all_go_on();
  }
  if (async_) {
    async_->drain();
  }
  relay_->submit(DrainRequested{});
}

void HttpApi::on_client_gone(net::ExchangeId id) {
  members_->client_left(id);
  if (batches_) {
    batches_->client_gone(id);
  }
  if (const auto request = clients_->find(id)) {
    if (cache_) {
      cache_->client_left(*request);
    }
    relay_->client_left(*request);
  }
}

void HttpApi::on_body(net::ExchangeId id, std::string_view bytes, net::BodyPart part) {
  batches_->on_body(id, bytes, part);
}

void HttpApi::on_writable(net::ExchangeId id) {
  if (batches_) {
    batches_->client_writable(id);
  }
  if (const auto request = clients_->find(id)) {
    relay_->client_writable(*request);
  }
}

std::optional<net::EarlyReply> HttpApi::on_head(net::HttpRequest& request) {
  if (control_ && !control_server_ && control_->takes(request.path)) {
    return control_->on_head(request);
  }
  if (batches_ && BatchRelay::takes(request.path)) {
    auto denied = relay_->reception().let_in_batch_request(request);
    if (!denied) {
      batches_->admit(request);
    }
    return denied;
  }
  if (KserveApi::takes(request.path)) {
    return kserve_->on_head(request);
  }
  const bool has_body = request.method == "POST" || request.method == "PUT";
  for (const Route& known : kRoutes) {
    const bool asks_worker = has_body || known.endpoint == Endpoint::kAnyWorker;
    if (asks_worker && known.method == request.method && known.path == request.path) {
      if (!has_body || known.endpoint == Endpoint::kAdapter) {
        request.body_bytes_max = std::min(request.body_bytes_max, limits::kHttpKeylessBodyBytesMax);
      }
      const bool is_order =
          known.endpoint == Endpoint::kAbort || known.endpoint == Endpoint::kAdapter;
      return is_order ? relay_->reception().recognize(request)
                      : relay_->reception().let_in(request);
    }
  }
  if (has_body && async_ && AsyncApi::takes_body(request)) {
    return relay_->reception().let_in(request);
  }
  if (passes(request)) {
    return relay_->reception().let_in(request);
  }
  request.body_bytes_max = std::min(request.body_bytes_max, limits::kHttpKeylessBodyBytesMax);
  return std::nullopt;
}

void HttpApi::on_request(net::ExchangeId id, net::HttpRequest& request) {
  if (control_ && !control_server_ && control_->takes(request.path)) {
    return control_->on_request(id, request);
  }
  if (async_ && async_->route(id, request)) {
    return;
  }
  if (batches_ && BatchRelay::takes(request.path)) {
    return route_batch(id, request);
  }
  if (KserveApi::takes(request.path)) {
    return kserve_->on_request(id, request);
  }
  std::vector<std::string_view> methods =
      async_ ? AsyncApi::methods(request.path) : std::vector<std::string_view>{};
  for (const Route& known : kRoutes) {
    if (!is_for(known, request.path)) {
      continue;
    }
    if (known.method != request.method) {
      methods.push_back(known.method);
      continue;
    }
    switch (known.endpoint) {
      case Endpoint::kGenerate:
        return route(id, request, true);
      case Endpoint::kAbort:
        return abort(id, request);
      case Endpoint::kAdapter:
        return order_adapter(id, request);
      case Endpoint::kAnyWorker:
        return route(id, request, false);
      case Endpoint::kModels:
      case Endpoint::kModel:
        return knows(id, request) ? reply_models(id, request) : void();
      case Endpoint::kHealth:
        return reply_health(id);
      case Endpoint::kMetrics:
        return reply_metrics(id);
      case Endpoint::kWorkers:
        return knows(id, request) ? reply_workers(id) : void();
      case Endpoint::kMembers:
        return knows(id, request) ? members_->reply(id, request) : void();
      case Endpoint::kTimings:
        if (relay_->reception().has_launchers_key(request)) {
          return reply_json(id, 200, relay_->watch().timings_json());
        }
        return refuse(id,
                      no_such_route(request, 404));  // Only the launcher knows that it is there.
    }
  }
  if (methods.empty() && passes(request)) {
    return pass(id, request);
  }
  if (methods.empty() && relay_->core().workers().knows_route(request.path, "")) {
    methods.push_back("POST");
  }
  if (methods.empty()) {
    return refuse(id, no_such_route(request, 404));
  }
  openai::reply_error(*server_, id, no_such_route(request, 405), {net::allow_header(methods)});
}

void HttpApi::route(net::ExchangeId id, net::HttpRequest& request, bool generates) {
  auto body = RequestBody::scan(request.method == "GET" ? "{}" : std::move(request.body),
                                form_of(request.path));
  if (!body) {
    return refuse(id, body.error());
  }
  const RequestId request_id = relay_->next_id();
  relay(request_id, request, *std::move(body), generates, clients_->open(id, request_id));
}

void HttpApi::relay(RequestId id, net::HttpRequest& request, RequestBody body, bool generates,
                    std::unique_ptr<ReplySink> sink) {
  if (audit_ && generates) {
    sink = audit_->watch(request, body, std::move(sink));
  }
  if (cache_ && generates && form_of(request.path) == BodyForm::kOpenai) {
    cache_->route(id, request, std::move(body), std::move(sink));
  } else {
    relay_->route(id, request, std::move(body), generates, std::move(sink));
  }
}

bool HttpApi::passes(const net::HttpRequest& request) const {
  return request.method == "POST" && relay_->core().workers().knows_route(request.path, "") &&
         std::ranges::none_of(kRoutes,
                              [&](const Route& known) { return is_for(known, request.path); });
}

void HttpApi::pass(net::ExchangeId id, net::HttpRequest& request) {
  auto body = RequestBody::pass(std::move(request.body), request.header("content-type"));
  if (!body) {
    return refuse(id, body.error());
  }
  const RequestId request_id = relay_->next_id();
  relay_->route(request_id, request, *std::move(body), /*generates=*/true,
                clients_->open(id, request_id));
}

void HttpApi::abort(net::ExchangeId id, const net::HttpRequest& request) {
  const auto form =
      request.path == "/abort_request" ? openai::AbortForm::kSglang : openai::AbortForm::kVllm;
  const auto parsed = openai::parse_abort(form, request.body);
  if (!parsed) {
    return refuse(id, parsed.error());
  }
  const size_t count = relay_->abort(*parsed, relay_->reception().tenant_of(request));
  reply_json(id, 200, openai::abort_answer(form, count));
}

// on_head() has identified the tenant.
void HttpApi::order_adapter(net::ExchangeId id, const net::HttpRequest& request) {
  Reception& reception = relay_->reception();
  const bool open = reception.admission().open_to_all();
  const bool may = open ? open_adapters_ || reception.has_launchers_key(request)
                        : reception.config_of(reception.tenant_of(request)).admin;
  if (!may) {
    return refuse(id, openai::invalid_request(
                          std::string("Only who administrates may load and unload adapters: ") +
                              (open ? "set router.open_adapters, or name a tenant with admin: true."
                                    : "show the key of a tenant with admin: true."),
                          "", "forbidden", 403));
  }
  adapters_->order(request.path, request.body, [this, id](const AdapterOrders::Answer& answer) {
    reply_json(id, answer.status, answer.body);
  });
}

// on_head() has identified the tenant.
void HttpApi::route_batch(net::ExchangeId id, const net::HttpRequest& request) {
  const auto known = relay_->reception().identify(request);
  const Admission& admission = relay_->reception().admission();
  const std::string tenant = admission.open_to_all()
                                 ? std::string()
                                 : admission.tenants()[std::get<Admission::Tenant>(known)].name;
  batches_->route(id, request, tenant, relay_->reception().request_id_of(request),
                  clients_->open(id, relay_->next_id()));
}

void HttpApi::refuse(net::ExchangeId id, const openai::ApiError& error) {
  openai::reply_error(*server_, id, error);
}

void HttpApi::reply_json(net::ExchangeId id, int status, const std::string& body) {
  server_->reply(id, status, "application/json", body);
}

bool HttpApi::knows(net::ExchangeId id, const net::HttpRequest& request) {
  const auto known = relay_->reception().identify(request);
  if (const auto* denial = std::get_if<Admission::Denial>(&known)) {
    const net::EarlyReply reply = relay_->reception().denied(*denial);
    server_->reply(id, reply.status, "application/json", reply.body, reply.headers);
    return false;
  }
  return true;
}

void HttpApi::reply_models(net::ExchangeId id, const net::HttpRequest& request) {
  const std::vector<openai::ModelCard> cards = model_cards(relay_->core(), began_);
  if (!request.path.starts_with(openai::kModelPath)) {
    return reply_json(id, 200, openai::models_body(cards));
  }
  const auto body = openai::model_body(cards, request.path.substr(openai::kModelPath.size()));
  if (!body) {
    return refuse(id, body.error());
  }
  reply_json(id, 200, *body);
}

void HttpApi::reply_health(net::ExchangeId id) {
  const bool serves = relay_->core().serves(loop_.now());
  if (serves && control_) {
    const auto workers = static_cast<uint32_t>(relay_->core().workers().all().size());
    reply_json(id, 200, control_reply(ControlForm::kHealth, {.workers = workers}, {}).body);
    return;
  }
  reply_json(id, serves ? 200 : 503,
             serves ? R"({"status":"ok"})" : R"({"status":"no usable pair of workers"})");
}

void HttpApi::reply_workers(net::ExchangeId id) {
  std::string body;
  JsonWriter json(body);
  json.begin_object().key("workers").begin_array();
  for (const auto& [worker_id, worker] : relay_->core().workers().all()) {
    append_worker(json, worker, relay_->core().kv(), loop_.now());
  }
  json.end_array();
  json.key("avoided_pairs").begin_array();
  for (const PairSuspicions::Pair& pair : relay_->core().suspicions().pairs(loop_.now())) {
    append_avoided(json, relay_->core().workers(), pair, loop_.now());
  }
  json.end_array();
  append_pairs_without_hand_over(json, relay_->core().workers());
  json.end_object();
  reply_json(id, 200, body);
}

void HttpApi::reply_metrics(net::ExchangeId id) {
  if (cache_) {
    relay_->metrics().cache_holds(cache_->cache().entries(), cache_->cache().bytes());
  }
  if (async_) {
    relay_->metrics().async_holds(async_->requests().alive(), async_->requests().running());
    relay_->metrics().callbacks_hold(async_->callbacks().waiting(), async_->callbacks().running());
  }
  server_->reply(id, 200, "text/plain; version=0.0.4; charset=utf-8",
                 relay_->watch().metrics_text());
}

}  // namespace pdjob::router
