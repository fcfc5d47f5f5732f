#include "worker/api/openai_api.h"

#include <algorithm>
#include <cstdio>
#include <optional>
#include <utility>

#include "common/hex.h"
#include "common/json/json_writer.h"
#include "common/limits.h"
#include "common/log.h"
#include "common/parse_number.h"
#include "net/http/reply_head.h"
#include "openai/headers.h"
#include "openai/reply_error.h"
#include "openai/tokenize_request.h"
#include "worker/api/kv_report.h"
#include "worker/core/kv_params.h"

namespace pdjob::worker {
namespace {

constexpr std::string_view kJson = "application/json";
constexpr size_t kReplyIdBytesMax = 128;
constexpr size_t kQuotedBytesMax = 256;  // Client text quoted in a message.
constexpr std::string_view kTransfers = "/pdjob/transfers/";
constexpr const char* kAbort = "DELETE /pdjob/transfers/{transfer}";  // WorkerEntry::abort.

// Whether a request of this size can be prepared at once, on the loop thread.
bool is_short(size_t body_bytes) { return body_bytes <= limits::kPreparedAtOnceBytesMax; }

std::string format_seconds(Duration duration) {
  char text[32];
  std::snprintf(text, sizeof text, "%.6f", seconds(duration));
  return text;
}

// Like vLLM, uses the id that the request came with, so that it can be found in the logs of every
// process.
std::string reply_id(std::string_view request_id, net::Loop& loop) {
  const bool plain = std::ranges::all_of(request_id, [](char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '-' ||
           c == '_' || c == '.';
  });
  return plain && !request_id.empty() && request_id.size() <= kReplyIdBytesMax
             ? std::string(request_id)
             : TransferId{loop.entropy(), loop.entropy()}.to_string();
}

// A stream that may continue at another worker gets its creation time from the router, so that it
// is the same everywhere.
std::optional<int64_t> created_by_router(std::string_view value) {
  const auto created = parse_number<int64_t>(value);
  return created.value_or(0) > 0 ? created : std::nullopt;
}

}  // namespace

OpenaiApi::OpenaiApi(OpenaiApiOptions options, const engine::Engine& engine,
                     EngineQueue& engine_queue, Metrics& metrics, KvPairsAsker ask_kv_pairs)
    : options_(std::move(options)),
      door_({options_.key, options_.router_key}),
      engine_(engine),
      maker_(engine, options_.role),
      engine_queue_(engine_queue),
      metrics_(metrics),
      registry_(metrics),
      ask_kv_pairs_(std::move(ask_kv_pairs)) {
  load_.rows_max = uint64_t{engine.config().sequences} * engine.config().tokens_per_sequence;
  set_weight_version(options_.weight_version);
}

void OpenaiApi::set_weight_version(std::string version) {
  weight_version_ = version.empty() ? "default" : std::move(version);
}

void OpenaiApi::attach(net::HttpServer& server, net::Loop& loop) {
  server_ = &server;
  loop_ = &loop;
  created_ = loop.unix_seconds();
  bootstrap_.emplace(loop);
  kv_watch_.emplace(loop, server);
  grammar_thread_.emplace(loop, engine_.vocabulary(), options_.grammar_program);
  grammars_.emplace([this](engine::StructureKind kind, std::string text, StructureDepth depth,
                           std::string digest, GrammarThread::Then then) {
    grammar_thread_->submit(kind, std::move(text), depth, std::move(digest), std::move(then));
  });
  preparer_.emplace(loop);
}

void OpenaiApi::start_draining(std::function<void()> prepared) {
  draining_ = true;
  kv_watch_->close();
  if (waiting_.empty() && prompts_held_ == 0) {
    prepared();
  } else {
    when_prepared_ = std::move(prepared);
  }
}

std::span<const OpenaiApi::Route> OpenaiApi::route_table() {
  static constexpr Route kRoutes[] = {
      {"/v1/chat/completions", "POST",
       [](OpenaiApi& api, net::ExchangeId i, net::HttpRequest& r) {
         api.on_generate(i, openai::ApiKind::kChat, r);
       }},
      {"/v1/responses", "POST",
       [](OpenaiApi& api, net::ExchangeId i, net::HttpRequest& r) {
         api.on_generate(i, openai::ApiKind::kResponses, r);
       }},
      {"/generate", "POST",
       [](OpenaiApi& api, net::ExchangeId i, net::HttpRequest& r) {
         api.on_generate(i, openai::ApiKind::kSglang, r);
       }},
      {"/generate", "PUT",
       [](OpenaiApi& api, net::ExchangeId i, net::HttpRequest& r) {
         api.on_generate(i, openai::ApiKind::kSglang, r);
       }},
      {"/inference/v1/generate", "POST",
       [](OpenaiApi& api, net::ExchangeId i, net::HttpRequest& r) {
         api.on_generate(i, openai::ApiKind::kTokens, r);
       }},
      {"/v1/completions", "POST",
       [](OpenaiApi& api, net::ExchangeId i, net::HttpRequest& r) {
         api.on_generate(i, openai::ApiKind::kCompletion, r);
       }},
      {"/v1/embeddings", "POST",
       [](OpenaiApi& api, net::ExchangeId i, net::HttpRequest& r) {
         api.on_generate(i, openai::ApiKind::kEmbedding, r);
       }},
      {"/abort_request", "POST",
       [](OpenaiApi& api, net::ExchangeId i, net::HttpRequest& r) {
         api.on_abort(i, openai::AbortForm::kSglang, r);
       }},
      {"/abort_requests", "POST",
       [](OpenaiApi& api, net::ExchangeId i, net::HttpRequest& r) {
         api.on_abort(i, openai::AbortForm::kVllm, r);
       }},
      {"/tokenize", "POST",
       [](OpenaiApi& api, net::ExchangeId i, net::HttpRequest& r) { api.on_tokenize(i, r); }},
      {"/detokenize", "POST",
       [](OpenaiApi& api, net::ExchangeId i, net::HttpRequest& r) { api.on_detokenize(i, r); }},
      {"/tokenizer_info", "GET",
       [](OpenaiApi& api, net::ExchangeId i, net::HttpRequest&) { api.on_tokenizer_info(i); }},
      {"/v1/models", "GET",
       [](OpenaiApi& api, net::ExchangeId i, net::HttpRequest&) { api.on_models(i, {}); }},
      {"/health", "GET",
       [](OpenaiApi& api, net::ExchangeId i, net::HttpRequest&) { api.on_health(i); }},
      {"/metrics", "GET",
       [](OpenaiApi& api, net::ExchangeId i, net::HttpRequest&) { api.on_metrics(i); }},
      {"/pdjob/worker", "GET",
       [](OpenaiApi& api, net::ExchangeId i, net::HttpRequest&) { api.on_worker_info(i); }},
      {"/pdjob/kv_address", "GET",
       [](OpenaiApi& api, net::ExchangeId i, net::HttpRequest&) { api.on_kv_address(i); }},
      {"/pdjob/links", "GET",
       [](OpenaiApi& api, net::ExchangeId i, net::HttpRequest&) { api.on_links(i); }},
      {"/pdjob/kv_events", "GET",
       [](OpenaiApi& api, net::ExchangeId i, net::HttpRequest& r) {
         api.kv_watch_->subscribe(i, r.is_head);
       }},
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
      return on_models(id, request.path.substr(openai::kModelPath.size()));
    }
    methods = {"GET"};
  }
  for (const Route& route : route_table()) {
    if (route.path != request.path) {
      continue;
    }
    if (route.method == request.method) {
      return route.handle(*this, id, request);
    }
    methods.push_back(route.method);
  }
  if (methods.empty()) {
    return refuse(id, openai::invalid_request("no such path: " + std::string(request.path), "",
                                              "not_found", 404));
  }
  refuse(
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
    refuse(id, openai::invalid_request("a transfer id is 32 hexadecimal digits", "transfer_id"));
  }
}

void OpenaiApi::on_generate(net::ExchangeId id, openai::ApiKind kind, net::HttpRequest& http) {
  if (draining_) {
    return refuse(id,
                  openai::to_api_error({ErrorCode::kUnavailable, "this worker is shutting down"}));
  }
  const size_t bytes = http.body.size();
  if (!begin_waiting(id, bytes)) {
    return;
  }
  Asked asked{.http = id,
              .request_id = std::string(http.header(openai::header::kRequestId)),
              .leg = std::string(http.header(openai::header::kLeg)),
              .tenant = std::string(http.header(openai::header::kTenant)),
              .created = created_by_router(http.header(openai::header::kContinue)),
              .bytes = bytes};
  Waiting& waiting = waiting_.at(id.value);
  waiting.request_id = asked.request_id;
  waiting.leg = asked.leg;
  waiting.tenant = asked.tenant;
  if (bytes <= limits::kParsedAtOnceBytesMax) {
    return on_parsed(std::move(asked), openai::parse_api_request(kind, http.body));
  }
  prepare(id, bytes, Size::kLarge,
          prepare_request(kind, std::move(http.body),
                          [this, asked](auto parsed) { on_parsed(asked, std::move(parsed)); }));
}

void OpenaiApi::on_parsed(Asked asked, std::variant<openai::ApiRequest, openai::ApiError> parsed) {
  if (const auto* error = std::get_if<openai::ApiError>(&parsed)) {
    return refuse(asked.http, *error);
  }
  auto& request = std::get<openai::ApiRequest>(parsed);
  if (!request.model.empty() && request.model != engine_.facts().name) {
    return refuse(asked.http,
                  openai::invalid_request("the model `" + request.model.substr(0, kQuotedBytesMax) +
                                              "` does not exist; this worker serves `" +
                                              engine_.facts().name + "`",
                                          "model", "model_not_found", 404));
  }
  if (request.bootstrap) {
    on_bootstrap(std::move(asked), std::move(request));
  } else {
    generate(asked, std::move(request));
  }
}

void OpenaiApi::on_bootstrap(Asked asked, openai::ApiRequest request) {
  const openai::BootstrapParams params = *request.bootstrap;
  if (options_.role != net::Role::kDecode) {
    if (options_.role == net::Role::kPrefill) {
      request.kv_transfer = offer_in_room(params);
    }
    return generate(asked, std::move(request));
  }
  if (params.port == 0) {
    return refuse(asked.http, openai::invalid_request("a decode worker needs it, to find the KV",
                                                      "bootstrap_port"));
  }
  bootstrap_->look_up(params, [this, asked = std::move(asked), request = std::move(request)](
                                  Result<openai::KvTransferParams> found) mutable {
    if (!waiting_.contains(asked.http.value)) {
      return;  // Its client left.
    }
    if (!found) {
      return refuse(asked.http, openai::to_api_error(found.error()));
    }
    request.kv_transfer = std::move(*found);
    generate(asked, std::move(request));
  });
}

void OpenaiApi::generate(const Asked& asked, openai::ApiRequest request) {
  if (const auto wrong = maker_.check(request)) {
    return refuse(asked.http, *wrong);
  }
  const bool tools = !request.tools.empty();
  if (!tools && !request.sampling.structured()) {
    return prepare(asked, std::move(request), {});
  }
  // A prefill worker does not apply the grammar, but refuses at once any that the decode worker
  // would refuse.
  const bool offered = request.kv_transfer && request.kv_transfer->do_remote_decode;
  const Structure structure = take_structure(request);
  grammars_->find(structure.kind, structure.text,
                  offered ? StructureDepth::kChecked : StructureDepth::kCompiled,
                  [this, asked, tools,
                   request = std::move(request)](const Result<GrammarThread::Compiled>& grammar) {
                    if (!waiting_.contains(asked.http.value)) {
                      return;  // Its client left.
                    }
                    if (!grammar) {
                      openai::ApiError error = openai::to_api_error(grammar.error());
                      if (tools && grammar.error().code == ErrorCode::kInvalidArgument) {
                        error.param = "tools";
                      }
                      return refuse(asked.http, error);
                    }
                    Asked held = asked;
                    held.not_held = grammar->not_held;
                    prepare(held, request, grammar->grammar);
                  });
}

void OpenaiApi::prepare(const Asked& asked, openai::ApiRequest request,
                        std::shared_ptr<const engine::CompiledGrammar> grammar) {
  const size_t choices = GenerationMaker::prompts(request) * request.choices;
  const bool small = is_short(asked.bytes) && choices <= limits::kPreparedAtOnceChoicesMax;
  prepare(
      asked.http, asked.bytes, small ? Size::kSmall : Size::kLarge,
      prepare_generations(maker_, std::move(request), loop_->entropy(), std::move(grammar),
                          [this, asked](std::variant<PreparedRequest, openai::ApiError> outcome) {
                            if (const auto* error = std::get_if<openai::ApiError>(&outcome)) {
                              return refuse(asked.http, *error);
                            }
                            start(asked, std::move(std::get<PreparedRequest>(outcome)));
                          }));
}

void OpenaiApi::prepare(net::ExchangeId id, size_t bytes, Size size,
                        std::unique_ptr<Preparation> work) {
  if (size == Size::kSmall) {
    while (!work->step()) {
    }
    return work->done();
  }
  if (const Status taken = preparer_->submit(id.value, bytes, std::move(work)); !taken) {
    refuse(id, openai::to_api_error(taken.error()));
  }
}

bool OpenaiApi::begin_waiting(net::ExchangeId id, size_t bytes) {
  if (waiting_.size() >= limits::kRequestsQueuedMax ||
      waiting_bytes_ + bytes > limits::kPreparedBytesMax) {
    refuse(id, openai::to_api_error({ErrorCode::kOverloaded,
                                     "this worker prepares as many requests as it can hold"}));
    return false;
  }
  waiting_[id.value].bytes = bytes;
  waiting_bytes_ += bytes;
  return true;
}

bool OpenaiApi::end_waiting(net::ExchangeId id) {
  const auto found = waiting_.find(id.value);
  if (found == waiting_.end()) {
    return false;
  }
  waiting_bytes_ -= found->second.bytes;
  waiting_.erase(found);
  report_if_prepared();
  return true;
}

void OpenaiApi::start(const Asked& asked, PreparedRequest prepared) {
  const auto waiting = waiting_.find(asked.http.value);
  const openai::AbortRequest aborted =
      waiting != waiting_.end() ? std::move(waiting->second.aborted) : openai::AbortRequest{};
  const openai::ApiRequest& request = prepared.request;
  std::vector<GenerationRequest>& generations = prepared.generations;
  const auto choices_per_prompt = static_cast<uint32_t>(generations.front().samplers.size());
  const auto choices = choices_per_prompt * static_cast<uint32_t>(generations.size());
  openai::ReplyOptions reply = openai::reply_options(request);
  const std::string id = reply_id(asked.request_id, *loop_);
  reply.id = id;
  reply.model = engine_.facts().name;
  const int64_t created = asked.created.value_or(loop_->unix_seconds());
  reply.created = created;
  reply.choices = choices;
  reply.choices_per_prompt = choices_per_prompt;
  const engine::Vocabulary& vocabulary = engine_.vocabulary();
  Exchange exchange{
      .http = asked.http,
      .log_name = id,
      .request_id = asked.request_id,
      .leg = asked.leg,
      .tenant = asked.tenant,
      .writer = openai::reply_form(
          std::move(reply),
          [&vocabulary](Token token, std::string& out) { out += vocabulary.piece(token, true); }),
      .choices = std::vector<ChoiceReply>(choices),
      .choices_per_prompt = choices_per_prompt,
      .choices_left = choices,
      .stream = request.stream,
      .embeds = request.kind == openai::ApiKind::kEmbedding,
      .shows_ends = request.kind == openai::ApiKind::kSglang ||
                    request.kind == openai::ApiKind::kTokens || request.return_token_ids,
      .tells = request.stream && asked.created,
      .headers = {{std::string(openai::header::kWorker), options_.name}},
      .arrived = loop_->now()};
  if (!asked.not_held.empty()) {
    exchange.headers.emplace_back(openai::header::kNotHeld, asked.not_held);
  }
  for (GenerationRequest& generation : generations) {
    const auto index = static_cast<uint32_t>(exchange.prompts.size());
    generation.id = RequestId{next_request_++};
    generation.group = index == 0 ? generation.id : exchange.prompts.front().generation;
    generation.tenant = asked.tenant;
    if (generation.kv == KvMode::kOffer && generation.two_hop) {
      generation.transfer = {loop_->entropy(), loop_->entropy()};
    }
    generation.log_name = id;
    exchange.usage.prompt_tokens += generation.prompt.size();
    if (generation.kv == KvMode::kOffer) {
      exchange.kv_transfer_params = prefill_reply_params(
          options_.kv, generation.transfer, static_cast<uint32_t>(generation.prompt.size()));
    }
    if (request.echo) {
      for (uint32_t choice = 0; choice < choices_per_prompt; ++choice) {
        exchange.choices[index * choices_per_prompt + choice].text = prepared.echoes[index];
      }
    }
    if (!request.tools.empty()) {
      const std::string seed = call_seed(id, created, generation.prompt);
      for (uint32_t choice = 0; choice < choices_per_prompt; ++choice) {
        exchange.choices[choice].tools.emplace(seed, choice);
      }
    }
    for (uint32_t choice = 0; choice < generation.resumed.size(); ++choice) {
      exchange.choices[index * choices_per_prompt + choice].resumed_left =
          generation.resumed[choice].size();
    }
    exchange.prompts.push_back(
        {.generation = generation.id,
         .rid = index < request.rids.size() ? request.rids[index] : std::string(),
         .ids = request.return_token_ids || request.scores_prompt() ? generation.prompt
                                                                    : std::vector<Token>{},
         .tokens = generation.prompt.size(),
         .choices_left = choices_per_prompt});
    generations_[generation.id] = {.exchange = asked.http.value, .prompt_index = index};
    exchange.held.push_back(std::move(generation));
  }
  prompts_held_ += exchange.held.size();
  end_waiting(asked.http);  // Not earlier: the worker must not drain in between.
  for (size_t i = 0; i < request.resumed_weights.size() && i < exchange.choices.size(); ++i) {
    exchange.choices[i].weights = request.resumed_weights[i];
  }
  Exchange& started = exchanges_.emplace(asked.http.value, std::move(exchange)).first->second;
  if (aborted.all || !aborted.names.empty()) {
    abort(started, aborted);
  }
  // An abort may have ended it.
  if (exchanges_.contains(asked.http.value)) {
    submit_held(started);
  }
}

bool OpenaiApi::take(OutputBatch batch) {
  load_ = batch.load;
  const engine::LendingReport before = std::exchange(work_, batch.work).lending;
  metrics_.borrowed_steps.add(static_cast<double>(work_.lending.steps - before.steps));
  metrics_.lending_rests.add(static_cast<double>(work_.lending.rests_begun - before.rests_begun));
  metrics_.lending_rests_now.set(work_.lending.rests ? 1 : 0);
  metrics_.requests_running.set(load_.requests_running);
  metrics_.requests_waiting.set(load_.requests_queued);
  metrics_.kv_rows_used.set(static_cast<double>(load_.rows_used));
  metrics_.kv_rows_max.set(static_cast<double>(load_.rows_max));
  bool drained = false;
  for (Output& output : batch.outputs) {
    std::visit(
        [&](auto& o) {
          if constexpr (std::is_same_v<std::decay_t<decltype(o)>, WorkerDrained>) {
            drained = true;
          } else {
            take_output(o);
          }
        },
        output);
  }
  kv_watch_->take(batch.kept);
  return drained;
}

void OpenaiApi::take_output(TokenOutput& output) {
  const auto found = generations_.find(output.request);
  if (found == generations_.end()) {
    return;  // Its client left.
  }
  const Generation generation = found->second;
  Exchange& exchange = exchanges_.at(generation.exchange);
  const uint32_t index = generation.prompt_index * exchange.choices_per_prompt + output.choice;
  ChoiceReply& choice = exchange.choices[index];
  exchange.usage.completion_tokens += output.no_token ? 0 : 1;
  choice.completion_tokens += output.no_token ? 0 : 1;
  if (!output.resumed && !output.no_token) {
    const bool first = exchange.last_token == Instant{};
    const Duration latency = loop_->now() - (first ? exchange.arrived : exchange.last_token);
    LatencySum& total = first ? ttft_ : itl_;
    total.sum += latency;
    ++total.count;
    (first ? metrics_.time_to_first_token : metrics_.inter_token_latency).observe(seconds(latency));
    exchange.last_token = loop_->now();
    metrics_.generation_tokens.add();
  }
  if (exchange.tells && !output.resumed && !output.no_token) {
    choice.untold.push_back(output.token.token);
  }
  choice.finish = output.finish;
  add_text(choice, output.text);
  if (!output.shown) {
    choice.stop_token = output.token.token;
  }
  choice.stop_string = std::move(output.stop_string);
  if (!output.no_token && (output.shown || exchange.shows_ends)) {
    const bool noted = !choice.weights.empty() &&
                       choice.weights.back().end > choice.tokens_noted;  // By another worker.
    if (!noted) {
      note_weights(choice.weights);
    }
    choice.tokens_noted += 1;
    choice.tokens.push_back(std::move(output.token));
  }
  const bool ended = output.finish != FinishReason::kNone;
  exchange.choices_left -= ended ? 1 : 0;
  PromptReply& prompt = exchange.prompts[generation.prompt_index];
  prompt.choices_left -= ended ? 1 : 0;
  exchange.prompts_submitted -= ended && prompt.choices_left == 0 ? 1 : 0;
  choice.resumed_left -= output.resumed && choice.resumed_left > 0 ? 1 : 0;
  if (exchange.stream && !send_part(exchange, index, output.resumed)) {
    return;
  }
  if (exchange.choices_left == 0) {
    return finish(exchange);
  }
  if (prompt.abort_wanted && !resumes(exchange, generation.prompt_index) &&
      !abort_prompt(exchange, generation.prompt_index)) {
    return;
  }
  if (!exchange.held.empty()) {
    submit_held(exchange);
  }
}

void OpenaiApi::add_text(ChoiceReply& choice, std::string_view text) {
  if (choice.tools) {
    choice.tools->take(text, choice.finish != FinishReason::kNone, choice.text, choice.calls);
  } else {
    choice.text += text;
  }
}

// A token more, of the version that the engine has now.
void OpenaiApi::note_weights(std::vector<openai::WeightSpan>& weights) const {
  const uint64_t tokens = weights.empty() ? 0 : weights.back().end;
  if (weights.empty() || weights.back().version != weight_version_) {
    weights.push_back({.version = weight_version_, .start = tokens});
  }
  weights.back().end = tokens + 1;
}

openai::ReplyPart OpenaiApi::part_of(const Exchange& exchange, uint32_t index) const {
  const ChoiceReply& choice = exchange.choices[index];
  const PromptReply& prompt = exchange.prompts[index / exchange.choices_per_prompt];
  return {.choice = index,
          .text = choice.text,
          .tokens = choice.tokens,
          .finish = choice.finish,
          .prompt = prompt.ids,
          .prompt_logprobs = prompt.scored ? &prompt.logprobs : nullptr,
          .prompt_tokens = prompt.tokens,
          .cached_tokens = prompt.cached_tokens,
          .completion_tokens = choice.completion_tokens,
          .seconds = seconds(loop_->now() - exchange.arrived),
          .stop_token = choice.stop_token,
          .stop_string = choice.stop_string,
          .weight_version = weight_version_,
          .weights = choice.weights,
          .calls = choice.calls,
          .embedding = prompt.embedding,
          .ends_in_calls = choice.tools && choice.tools->ends_in_calls()};
}

void OpenaiApi::begin_stream(Exchange& exchange) {
  if (!exchange.begun) {
    exchange.begun = true;
    exchange.headers.emplace_back(openai::kUnbuffered);
    server_->begin(exchange.http, 200, openai::kEventStream, exchange.headers);
  }
}

std::string_view OpenaiApi::told(const Exchange& exchange, ChoiceReply& choice, uint32_t index) {
  extension_.clear();
  if (!exchange.tells) {
    return extension_;
  }
  extension_.append("t=").append(std::to_string(index));
  for (const Token token : choice.untold) {
    extension_.append(".").append(std::to_string(token));
  }
  if (!choice.weights.empty() && choice.weights.back().version != choice.told_weights) {
    choice.told_weights = choice.weights.back().version;
    extension_.append(";w=");
    for (const char byte : choice.told_weights) {
      append_hex(extension_, static_cast<unsigned char>(byte), 2);
    }
  }
  return extension_;
}

bool OpenaiApi::send_part(Exchange& exchange, uint32_t index, bool known) {
  if (!known) {
    begin_stream(exchange);
  }
  ChoiceReply& choice = exchange.choices[index];
  buffer_.clear();
  exchange.writer->append_part(buffer_, part_of(exchange, index));
  choice.text.clear();
  choice.calls.clear();
  choice.tokens.clear();
  if (!buffer_.empty() && !known) {
    server_->write(exchange.http, buffer_, told(exchange, choice, index));
    choice.untold.clear();
  }
  if (server_->bytes_queued(exchange.http) > limits::kHttpSendQueueBytesMax) {
    log::warn("request " + exchange.log_name + ": its client reads too slowly, the stream is cut");
    server_->abort(exchange.http);
    metrics_.requests_cancelled.add();
    drop(exchange.http.value);
    return false;
  }
  return true;
}

void OpenaiApi::finish(Exchange& exchange) {
  buffer_.clear();
  exchange.usage.ended = loop_->unix_seconds();
  if (exchange.stream) {
    begin_stream(exchange);
    exchange.writer->append_end(buffer_, exchange.usage);
    server_->write(exchange.http, buffer_, exchange.tells ? "t=end" : "");
    server_->end(exchange.http);
  } else {
    std::vector<openai::ReplyPart> parts;
    for (uint32_t index = 0; index < exchange.choices.size(); ++index) {
      parts.push_back(part_of(exchange, index));
    }
    exchange.writer->append_whole(buffer_, parts, exchange.usage, exchange.kv_transfer_params);
    server_->reply(exchange.http, 200, kJson, buffer_, exchange.headers);
  }
  (exchange.aborted ? metrics_.requests_cancelled : metrics_.requests_succeeded).add();
  metrics_.prompt_tokens.add(static_cast<double>(exchange.usage.prompt_tokens));
  for (const PromptReply& prompt : exchange.prompts) {
    generations_.erase(prompt.generation);
  }
  prompts_held_ -= exchange.held.size();  // Aborted ones.
  exchanges_.erase(exchange.http.value);
  report_if_prepared();
}

void OpenaiApi::take_output(const KvFetched& output) {
  metrics_.kv_transfers_received.add();
  metrics_.kv_bytes_received.add(static_cast<double>(output.bytes));
  metrics_.kv_transfer_seconds.observe(seconds(output.duration));
  metrics_.kv_visible_seconds.observe(seconds(output.visible));
  const auto found = generations_.find(output.request);
  if (found == generations_.end()) {
    return;
  }
  note_cached(found->second, output.prompt_reused);
  auto& headers = exchanges_.at(found->second.exchange).headers;
  headers.emplace_back(openai::header::kKvBytes, std::to_string(output.bytes));
  headers.emplace_back(openai::header::kKvSeconds, format_seconds(output.duration));
  headers.emplace_back(openai::header::kKvVisibleSeconds, format_seconds(output.visible));
  headers.emplace_back(openai::header::kKvTransport, output.transport);
}

void OpenaiApi::take_output(const PromptReused& output) {
  metrics_.prefix_cache_queries.add(static_cast<double>(output.prompt_tokens));
  metrics_.prefix_cache_hits.add(static_cast<double>(output.rows));
  if (const auto found = generations_.find(output.request); found != generations_.end()) {
    note_cached(found->second, output.rows);
  }
}

void OpenaiApi::note_cached(const Generation& generation, uint64_t tokens) {
  Exchange& exchange = exchanges_.at(generation.exchange);
  exchange.usage.cached_tokens += tokens;
  exchange.prompts[generation.prompt_index].cached_tokens += tokens;
}

void OpenaiApi::take_output(PromptScored& output) {
  if (const auto found = generations_.find(output.request); found != generations_.end()) {
    PromptReply& prompt = exchanges_.at(found->second.exchange).prompts[found->second.prompt_index];
    prompt.scored = true;
    prompt.logprobs = std::move(output.logprobs);
  }
}

void OpenaiApi::take_output(PromptEmbedded& output) {
  if (const auto found = generations_.find(output.request); found != generations_.end()) {
    exchanges_.at(found->second.exchange).prompts[found->second.prompt_index].embedding =
        std::move(output.embedding);
  }
}

void OpenaiApi::take_output(const RequestFailed& output) {
  const auto found = generations_.find(output.request);
  if (found == generations_.end()) {
    return;
  }
  Exchange& exchange = exchanges_.at(found->second.exchange);
  metrics_.requests_failed.add();
  const openai::ApiError error = openai::to_api_error(output.error);
  if (!exchange.begun) {
    if (output.error.code == ErrorCode::kOverloaded) {
      exchange.headers.emplace_back("Retry-After", "1");
    }
    if (!output.kv_suspect.empty()) {
      exchange.headers.emplace_back(openai::header::kKvSuspect, output.kv_suspect);
    }
    openai::reply_error(*server_, exchange.http, error, exchange.headers);
  } else {
    // The 200 is already sent. Send the error, then abort, so that no client takes this for a
    // complete answer. A stream that may continue at another worker gets no error event.
    buffer_.clear();
    if (!exchange.tells) {
      exchange.writer->append_error(buffer_, error);
      server_->write(exchange.http, buffer_);
    }
    server_->abort(exchange.http);
  }
  drop(exchange.http.value);
}

void OpenaiApi::on_client_gone(net::ExchangeId id) {
  if (end_waiting(id)) {
    preparer_->cancel(id.value);
    metrics_.requests_cancelled.add();
  }
  kv_watch_->client_left(id);
  if (exchanges_.contains(id.value)) {
    metrics_.requests_cancelled.add();
    drop(id.value);
  }
}

void OpenaiApi::drop(ExchangeKey key) {
  const auto found = exchanges_.find(key);
  for (const PromptReply& prompt : found->second.prompts) {
    if (generations_.erase(prompt.generation) > 0) {
      engine_queue_.cancel(prompt.generation);
    }
  }
  prompts_held_ -= found->second.held.size();
  exchanges_.erase(found);
  report_if_prepared();
}

void OpenaiApi::refuse(net::ExchangeId id, const openai::ApiError& error,
                       std::vector<std::pair<std::string, std::string>> headers) {
  end_waiting(id);
  metrics_.requests_failed.add();
  headers.emplace_back(openai::header::kWorker, options_.name);
  if (error.code == to_string(ErrorCode::kOverloaded)) {
    headers.emplace_back("Retry-After", "1");
  }
  openai::reply_error(*server_, id, error, headers);
}

BodyThen OpenaiApi::reply_with_body(net::ExchangeId id) {
  return [this, id](std::variant<std::string, openai::ApiError> body) {
    if (const auto* error = std::get_if<openai::ApiError>(&body)) {
      return refuse(id, *error);
    }
    end_waiting(id);
    server_->reply(id, 200, kJson, std::get<std::string>(body));
  };
}

bool OpenaiApi::begin_tokenizing(net::ExchangeId id, size_t bytes) {
  if (bytes > limits::kTokenizeBodyBytesMax) {
    refuse(id,
           openai::invalid_request("the body must have at most " +
                                   std::to_string(limits::kTokenizeBodyBytesMax) + " bytes here"));
    return false;
  }
  return begin_waiting(id, bytes);
}

void OpenaiApi::on_tokenize(net::ExchangeId id, const net::HttpRequest& http) {
  if (!begin_tokenizing(id, http.body.size())) {
    return;
  }
  auto parsed = openai::parse_tokenize_request(http.body);
  if (const auto* error = std::get_if<openai::ApiError>(&parsed)) {
    return refuse(id, *error);
  }
  prepare(id, http.body.size(), is_short(http.body.size()) ? Size::kSmall : Size::kLarge,
          prepare_tokens(maker_, std::move(std::get<openai::TokenizeRequest>(parsed)),
                         engine_.config().tokens_per_sequence, reply_with_body(id)));
}

void OpenaiApi::on_detokenize(net::ExchangeId id, const net::HttpRequest& http) {
  if (!begin_tokenizing(id, http.body.size())) {
    return;
  }
  const size_t tokens_max =
      std::max<size_t>(limits::kDetokenizeTokensMax, engine_.config().tokens_per_sequence);
  auto parsed = openai::parse_detokenize_request(http.body, tokens_max);
  if (const auto* error = std::get_if<openai::ApiError>(&parsed)) {
    return refuse(id, *error);
  }
  prepare(id, http.body.size(), is_short(http.body.size()) ? Size::kSmall : Size::kLarge,
          prepare_text(maker_, std::move(std::get<openai::DetokenizeRequest>(parsed)),
                       reply_with_body(id)));
}

void OpenaiApi::on_tokenizer_info(net::ExchangeId id) {
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
  server_->reply(id, 200, kJson, body);
}

void OpenaiApi::on_abort(net::ExchangeId id, openai::AbortForm form, const net::HttpRequest& http) {
  const auto parsed = openai::parse_abort(form, http.body);
  if (const auto* error = std::get_if<openai::ApiError>(&parsed)) {
    return refuse(id, *error);
  }
  const size_t count =
      abort(std::get<openai::AbortRequest>(parsed), http.header(openai::header::kTenant));
  server_->reply(id, 200, kJson, openai::abort_answer(form, count));
}

void OpenaiApi::on_models(net::ExchangeId id, std::optional<std::string_view> one) {
  const openai::ModelCard card{.id = engine_.facts().name,
                               .created = created_,
                               .context_max = engine_.config().tokens_per_sequence};
  if (!one) {
    return server_->reply(id, 200, kJson, openai::models_body({&card, 1}));
  }
  const auto body = openai::model_body({&card, 1}, *one);
  if (const auto* error = std::get_if<openai::ApiError>(&body)) {
    return refuse(id, *error);
  }
  server_->reply(id, 200, kJson, std::get<std::string>(body));
}

void OpenaiApi::on_health(net::ExchangeId id) {
  if (draining_) {
    return refuse(id, {.status = 503,
                       .type = "overloaded_error",
                       .message = "this worker is shutting down",
                       .code = "draining"});
  }
  server_->reply(id, 200, kJson, R"({"status":"ok"})");
}

void OpenaiApi::on_metrics(net::ExchangeId id) {
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

void OpenaiApi::on_kv_address(net::ExchangeId id) {
  std::string body;
  JsonWriter json(body);
  json.begin_object().key("kv_address").raw(kv_address_json(options_.kv)).end_object();
  server_->reply(id, 200, kJson, body);
}

void OpenaiApi::on_links(net::ExchangeId id) {
  ask_kv_pairs_([this, id](const auto& pairs, const kvtransfer::EndpointStats& /*stats*/) {
    std::string body;
    JsonWriter json(body);
    begin_self(json);
    json.key("links").raw(kv_pairs_json(pairs));
    json.end_object();
    server_->reply(id, 200, kJson, body);
  });
}

void OpenaiApi::on_worker_info(net::ExchangeId id) {
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
  json.key("load").begin_object();
  json.key("requests_running").integer(now.requests_running);
  json.key("requests_queued").integer(now.requests_queued);
  json.key("tokens_queued").integer(now.tokens_queued);
  json.key("kv_rows_used").integer(now.kv_rows_used);
  json.key("kv_rows_max").integer(now.kv_rows_max);
  json.end_object().end_object();
  server_->reply(id, 200, kJson, body);
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
          .created = static_cast<uint64_t>(created_)};
}

Standstill OpenaiApi::standstill() {
  const auto counted = [this](const Standstill& still, StarvedTime& starved) {
    const Waits waits = starved.of(still.lasted, options_.run_delays);
    return with_waits(still, waits.longest, waits.sum);
  };
  Duration helper = options_.kv_standstill();
  if (preparer_) {
    helper = std::max({helper, preparer_->standstill(), grammar_thread_->standstill()});
  }
  return worst(counted(engine_queue_.standstill(), engine_starved_),
               counted({.lasted = helper}, helper_starved_));
}

net::WorkerLoad OpenaiApi::load() {
  using std::chrono::milliseconds;
  const auto whole = [](auto unit, Duration duration) {
    return static_cast<uint64_t>(std::chrono::duration_cast<decltype(unit)>(duration).count());
  };
  const auto us = [&](Duration duration) { return whole(std::chrono::microseconds(), duration); };
  const Standstill still = standstill();
  return {.requests_running = load_.requests_running,
          .requests_queued = load_.requests_queued + static_cast<uint32_t>(prompts_held_),
          .tokens_queued = load_.tokens_queued,
          .kv_rows_used = load_.rows_used,
          .kv_rows_max = load_.rows_max,
          .standstill_ms = whole(milliseconds(), still.lasted),
          .patience_ms = whole(milliseconds(), still.patience),
          .starved_ms = whole(milliseconds(), still.starved),
          .tokens_computed = work_.tokens,
          .busy_us = us(work_.busy),
          .ttft_sum_us = us(ttft_.sum),
          .ttft_count = ttft_.count,
          .itl_sum_us = us(itl_.sum),
          .itl_count = itl_.count,
          .steps = work_.steps,
          .borrowed_steps = work_.lending.steps,
          .lending_rests = work_.lending.rests_begun,
          .lending_rests_now = work_.lending.rests};
}

}  // namespace pdjob::worker
