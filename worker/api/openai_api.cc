#include "worker/api/openai_api.h"

#include <algorithm>
#include <utility>

#include "common/limits.h"
#include "net/http/reply_head.h"
#include "openai/headers.h"
#include "openai/openai.h"
#include "worker/api/kv_report.h"
#include "worker/core/fingerprint.h"
#include "worker/core/kv_params.h"

namespace pdjob::worker {
namespace {

constexpr std::string_view kTransfers = "/pdjob/transfers/";
constexpr const char* kAbort = "DELETE /pdjob/transfers/{transfer}";  // WorkerEntry::abort.

Weights weights_of(const OpenaiApiOptions& options) {
  return options.weight_version.empty() ? Weights::kFixed : Weights::kUpdated;
}

}  // namespace

OpenaiApi::OpenaiApi(OpenaiApiOptions options, const engine::Engine& engine,
                     EngineQueue& engine_queue, Metrics& metrics, KvPairsAsker ask_kv_pairs)
    : options_(std::move(options)),
      door_({options_.key, options_.router_key}),
      engine_(engine),
      engine_queue_(engine_queue),
      metrics_(metrics),
      registry_(metrics),
      ask_kv_pairs_(std::move(ask_kv_pairs)),
      meter_(engine.config(), metrics_, options_.run_delays) {}

void OpenaiApi::attach(net::HttpServer& server, net::Loop& loop) {
  server_ = &server;
  loop_ = &loop;
  created_ = loop.unix_seconds();
  replies_.emplace(server, options_.name, metrics_);
  kv_watch_.emplace(loop, server);
  book_.emplace(ReplyBook::Options{.name = options_.name,
                                   .kv = options_.kv,
                                   .queue_timeout = options_.queue_timeout,
                                   .weight_version = options_.weight_version,
                                   .meaning = meaning(),
                                   .trusts_store = !options_.local_links},
                engine_, engine_queue_, server, loop, metrics_, meter_,
                [this] { report_if_prepared(); });
  intake_.emplace(
      loop, engine_, meaning(), options_.role, options_.grammar_program, *replies_,
      [this](const Asked& asked, PreparedRequest prepared, const openai::AbortRequest& aborted) {
        book_->start(asked, std::move(prepared), aborted);
      },
      [this] { report_if_prepared(); });
}

void OpenaiApi::start_draining(std::function<void()> prepared) {
  draining_ = true;
  kv_watch_->close();
  if (this->prepared()) {
    prepared();
  } else {
    when_prepared_ = std::move(prepared);
  }
}

void OpenaiApi::report_if_prepared() {
  if (when_prepared_ && prepared()) {
    // In a later turn: the engine thread does not have the last request yet.
    loop_->post(std::exchange(when_prepared_, nullptr));
  }
}

std::span<const OpenaiApi::Route> OpenaiApi::route_table() {
  using openai::AbortForm;
  using openai::ApiKind;
  static constexpr Route kRoutes[] = {
      {"/v1/chat/completions", "POST", &OpenaiApi::on_generate<ApiKind::kChat>},
      {"/v1/responses", "POST", &OpenaiApi::on_generate<ApiKind::kResponses>},
      {"/generate", "POST", &OpenaiApi::on_generate<ApiKind::kSglang>},
      {"/generate", "PUT", &OpenaiApi::on_generate<ApiKind::kSglang>},
      {"/inference/v1/generate", "POST", &OpenaiApi::on_generate<ApiKind::kTokens>},
      {"/v1/completions", "POST", &OpenaiApi::on_generate<ApiKind::kCompletion>},
      {"/v1/embeddings", "POST", &OpenaiApi::on_generate<ApiKind::kEmbedding>},
      {"/abort_request", "POST", &OpenaiApi::on_abort<AbortForm::kSglang>},
      {"/abort_requests", "POST", &OpenaiApi::on_abort<AbortForm::kVllm>},
      {"/tokenize", "POST", &OpenaiApi::on_tokenize},
      {"/detokenize", "POST", &OpenaiApi::on_detokenize},
      {"/tokenizer_info", "GET", &OpenaiApi::on_tokenizer_info},
      {"/v1/models", "GET", &OpenaiApi::on_models},
      {"/health", "GET", &OpenaiApi::on_health},
      {"/metrics", "GET", &OpenaiApi::on_metrics},
      {"/pdjob/worker", "GET", &OpenaiApi::on_worker_info},
      {"/pdjob/kv_address", "GET", &OpenaiApi::on_kv_address},
      {"/pdjob/links", "GET", &OpenaiApi::on_links},
      {"/pdjob/kv_events", "GET", &OpenaiApi::on_kv_events},
  };
  return kRoutes;
}

std::vector<std::pair<std::string_view, std::string_view>> OpenaiApi::routes() {
  std::vector<std::pair<std::string_view, std::string_view>> routes = {
      {"DELETE", "/pdjob/transfers/ID"}, {"GET", "/v1/models/ID"}};
  for (const Route& route : route_table()) {
    routes.emplace_back(route.method, route.path);
  }
  return routes;
}

void OpenaiApi::on_request(net::ExchangeId id, net::HttpRequest& request) {
  std::vector<std::string_view> methods;
  if (request.path.starts_with(kTransfers)) {
    if (request.method == "DELETE") {
      return on_release(id, request.path.substr(kTransfers.size()));
    }
    methods = {"DELETE"};
  } else if (request.path.starts_with(openai::kModelPath)) {
    if (request.method == "GET") {
      return on_models(id, request);
    }
    methods = {"GET"};
  }
  for (const Route& route : route_table()) {
    if (route.path != request.path) {
      continue;
    }
    if (route.method == request.method) {
      return (this->*route.handle)(id, request);
    }
    methods.push_back(route.method);
  }
  if (methods.empty()) {
    return replies_->refuse(
        id, openai::invalid_request("no such path: " + std::string(request.path), "", "not_found",
                                    404));
  }
  replies_->refuse(
      id,
      openai::invalid_request(std::string(request.path) + " takes " + std::string(methods.back()),
                              "", "method_not_allowed", 405),
      {net::allow_header(methods)});
}

std::optional<net::EarlyReply> OpenaiApi::on_head(net::HttpRequest& request) {
  // Two paths need no key. A load balancer may ask whether the worker is alive. Another worker may
  // ask where to open links; links have a proof of their own. That worker must not show its key to
  // any host that a request names.
  const bool tells_nothing = request.path == "/health" || request.path == "/pdjob/kv_address";
  if (door_.opens(request.header("authorization"))) {
    return std::nullopt;
  }
  if (tells_nothing) {
    request.body_bytes_max = limits::kHttpKeylessBodyBytesMax;
    return std::nullopt;
  }
  const openai::ApiError error = openai::invalid_request(
      "This is a pdjob worker, which serves the router of its job: send requests to the router's "
      "address. A worker that was started by hand takes the key of its --key-file, as "
      "Authorization: Bearer KEY",
      "", "invalid_api_key", 401);
  return net::EarlyReply{.status = error.status, .body = openai::error_body(error)};
}

void OpenaiApi::on_release(net::ExchangeId id, std::string_view transfer) {
  if (const auto parsed = TransferId::parse(transfer)) {
    engine_queue_.release(*parsed);
    server_->reply(id, 204, kJson, "");
  } else {
    replies_->refuse(
        id, openai::invalid_request("a transfer id is 32 hexadecimal digits", "transfer_id"));
  }
}

template <openai::ApiKind kind>
void OpenaiApi::on_generate(net::ExchangeId id, net::HttpRequest& request) {
  if (draining_) {
    return replies_->refuse(
        id, openai::to_api_error({ErrorCode::kUnavailable, "this worker is shutting down"}));
  }
  intake_->take(id, kind, request);
}

bool OpenaiApi::take(OutputBatch batch) {
  meter_.take(batch.load, batch.work);
  bool drained = false;
  for (Output& output : batch.outputs) {
    drained = drained || std::holds_alternative<WorkerDrained>(output);
    book_->take(output);
  }
  kv_watch_->take(batch.kept);
  return drained;
}

size_t OpenaiApi::abort(const openai::AbortRequest& asked, std::string_view tenant) {
  return intake_->abort(asked, tenant) + book_->abort(asked, tenant);
}

void OpenaiApi::on_client_gone(net::ExchangeId id) {
  if (intake_->client_left(id)) {
    metrics_.requests_cancelled.add();
  }
  kv_watch_->client_left(id);
  book_->client_left(id);
}

void OpenaiApi::on_tokenizer_info(net::ExchangeId id, net::HttpRequest& /*request*/) {
  const engine::Vocabulary::Bounds bounds = engine_.vocabulary().bounds();
  std::string body;
  JsonWriter json(body);
  json.begin_object().key("tokenizer_class").string("pdjob");
  for (const auto& [name, text] :
       {std::pair{"bos_token", &bounds.begin}, {"eos_token", &bounds.end}}) {
    json.key(name);
    text->empty() ? json.null() : json.string(*text);
  }
  json.key("model_max_length").integer(engine_.config().tokens_per_sequence);
  json.end_object();
  replies_->json(id, body);
}

template <openai::AbortForm form>
void OpenaiApi::on_abort(net::ExchangeId id, net::HttpRequest& http) {
  const auto parsed = openai::parse_abort(form, http.body);
  if (!parsed) {
    return replies_->refuse(id, parsed.error());
  }
  const size_t count = abort(*parsed, http.header(openai::header::kTenant));
  replies_->json(id, openai::abort_answer(form, count));
}

void OpenaiApi::on_models(net::ExchangeId id, net::HttpRequest& request) {
  const openai::ModelCard card{.id = engine_.facts().name,
                               .created = created_,
                               .context_max = engine_.config().tokens_per_sequence};
  if (!request.path.starts_with(openai::kModelPath)) {
    return replies_->json(id, openai::models_body({&card, 1}));
  }
  const auto body = openai::model_body({&card, 1}, request.path.substr(openai::kModelPath.size()));
  if (!body) {
    return replies_->refuse(id, body.error());
  }
  replies_->json(id, *body);
}

void OpenaiApi::on_health(net::ExchangeId id, net::HttpRequest& /*request*/) {
  if (draining_) {
    return replies_->refuse(id, {.status = 503,
                                 .type = "overloaded_error",
                                 .message = "this worker is shutting down",
                                 .code = "draining"});
  }
  replies_->json(id, R"({"status":"ok"})");
}

void OpenaiApi::on_metrics(net::ExchangeId id, net::HttpRequest& /*request*/) {
  ask_kv_pairs_([this, id](const auto& pairs, const kvtransfer::EndpointStats& stats) {
    server_->reply(id, 200, "text/plain; version=0.0.4",
                   registry_.text() + kv_pairs_metrics(pairs, stats));
  });
}

void OpenaiApi::begin_self(JsonWriter& json) const {
  json.begin_object();
  json.key("name").string(options_.name);
  json.key("engine_id").string(options_.kv.engine_id);
  json.key("role").string(net::to_string(options_.role));
}

void OpenaiApi::on_kv_address(net::ExchangeId id, net::HttpRequest& /*request*/) {
  std::string body;
  JsonWriter json(body);
  json.begin_object().key("kv_address").raw(kv_address_json(options_.kv)).end_object();
  replies_->json(id, body);
}

void OpenaiApi::on_links(net::ExchangeId id, net::HttpRequest& /*request*/) {
  ask_kv_pairs_([this, id](const auto& pairs, const kvtransfer::EndpointStats& /*stats*/) {
    std::string body;
    JsonWriter json(body);
    begin_self(json);
    json.key("links").raw(kv_pairs_json(pairs));
    json.end_object();
    replies_->json(id, body);
  });
}

void OpenaiApi::on_worker_info(net::ExchangeId id, net::HttpRequest& /*request*/) {
  const net::WorkerLoad now = load();
  std::string body;
  JsonWriter json(body);
  begin_self(json);
  json.key("model").string(engine_.facts().name);
  json.key("created").integer(created_);
  json.key("max_model_len").integer(engine_.config().tokens_per_sequence);
  json.key("draining").boolean(draining_);
  json.key("kv_address").raw(kv_address_json(options_.kv));
  json.key("abort").string(kAbort);
  json.key("local_links").boolean(options_.local_links);
  json.key("fingerprint").string(fingerprint());
  json.key("load").begin_object();
  json.key("requests_running").integer(now.requests_running);
  json.key("requests_queued").integer(now.requests_queued);
  json.key("tokens_queued").integer(now.tokens_queued);
  json.key("kv_rows_used").integer(now.kv_rows_used);
  json.key("kv_rows_max").integer(now.kv_rows_max);
  json.end_object().end_object();
  replies_->json(id, body);
}

net::WorkerEntry OpenaiApi::entry(const std::string& host, uint16_t port) const {
  return {.name = options_.name,
          .engine_id = options_.kv.engine_id,
          .role = options_.role,
          .host = host,
          .port = port,
          .model = engine_.facts().name,
          .kv_address = kv_address_json(options_.kv),
          .key = options_.key,
          .protocol = net::Protocol::kPdjob,
          .abort = kAbort,
          .local_links = options_.local_links,
          .model_digest = engine_.facts().digest,
          .context_max = engine_.config().tokens_per_sequence,
          .created = static_cast<uint64_t>(created_),
          .fingerprint = fingerprint()};
}

std::string OpenaiApi::meaning() const { return meaning_of(engine_.facts(), weights_of(options_)); }

std::string OpenaiApi::fingerprint() const {
  return fingerprint_of(engine_.facts(), weights_of(options_));
}

net::WorkerLoad OpenaiApi::load() {
  const Duration intake = intake_ ? intake_->standstill() : Duration::zero();
  return meter_.load(book_ ? book_->prompts_held() : 0, engine_queue_.standstill(),
                     std::max(options_.kv_standstill(), intake));
}

}  // namespace pdjob::worker
