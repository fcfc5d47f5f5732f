#include "router/relay/relay_api.h"

#include <algorithm>
#include <utility>

#include "common/check.h"
#include "common/crypto/sha256.h"
#include "common/limits.h"
#include "common/log.h"
#include "openai/headers.h"
#include "openai/openai.h"
#include "openai/openai_reply.h"
#include "router/core/verdict.h"
#include "router/relay/leg_head.h"

namespace pdjob::router {
namespace {

constexpr Duration kReleaseTimeout = std::chrono::seconds(5);
// Each leg sends a copy of the body.
constexpr size_t kLegsWithABody = 2;

std::string name_of_leg(const LegId& leg) {
  return std::string(leg.stage == Stage::kPrefill ? "prefill" : "decode") + " leg, attempt " +
         std::to_string(leg.attempt);
}

// True for a stream that a record of such a worker reads.
bool is_stream_of(bool pdjob, const net::HttpReplyHead& head) {
  const bool from_pdjob = !head.header(openai::header::kWorker).empty();
  return head.status == 200 && head.framing == net::BodyFraming::kChunked && from_pdjob == pdjob &&
         (pdjob || head.header("content-type").starts_with("text/event-stream"));
}

std::string header_lines(const Admission::Headers& headers) {
  std::string lines;
  for (const auto& [name, value] : headers) {
    lines.append(name).append(": ").append(value).append("\r\n");
  }
  return lines;
}

}  // namespace

RelayApi::RelayApi(net::Loop& loop, const RouterConfig& config, Policies policies,
                   std::unique_ptr<Tracer> tracer, std::function<void()> on_drained)
    : loop_(loop),
      config_(config),
      on_drained_(std::move(on_drained)),
      client_(net::HttpClient::create(loop)),
      core_(config, std::move(policies), /*seed=*/loop.entropy(),
            [&loop] { return loop.entropy(); }),
      watch_(loop, core_, std::move(tracer)),
      reception_(loop, config, metrics()),
      aborts_(loop, config_, *client_, core_.workers(), reception_, *this) {}

// --- events

void RelayApi::take_over(const RouterConfig& config) {
  take_live_keys(config, config_);
  reception_.admission().change(config.tenants);
  submit(ConfigChanged{config});
}

void RelayApi::route(RequestId id, net::HttpRequest& request, RequestBody body, bool generates,
                     std::unique_ptr<ReplySink> sink) {
  const uint64_t tokens = generates ? body.tokens() : body.prompt_tokens();
  const Admission::Tenant tenant = reception_.tenant_of(request);
  if (const auto denial = reception_.admit(tenant, tokens)) {
    reply_json(*sink, *denial);
    return;
  }
  begin(
      id,
      {.sink = std::move(sink),
       .abortable = generates && !body.embeds() && !body.passes() && !reception_.is_row(request) &&
                    !reception_.is_probe(request, reception_.config_of(tenant)),
       .tenant = tenant,
       .tokens_paid = tokens},
      request, std::move(body), {.generates = generates});
}

void RelayApi::route_admitted(RequestId id, Admission::Tenant tenant,
                              const net::HttpRequest& request, RequestBody body,
                              std::unique_ptr<ReplySink> sink) {
  reception_.admission().enter(tenant);
  // It pays no tokens: they were charged long ago, when it was submitted.
  begin(id, {.sink = std::move(sink), .tenant = tenant}, request, std::move(body),
        {.generates = true});
}

void RelayApi::route_alone(RequestId id, Admission::Tenant tenant, const net::HttpRequest& request,
                           RequestBody body, std::unique_ptr<ReplySink> sink) {
  reception_.admission().enter(tenant);
  begin(id, {.sink = std::move(sink), .tenant = tenant}, request, std::move(body),
        {.generates = true, .alone = true});
}

void RelayApi::begin(RequestId id, Exchange admitted, const net::HttpRequest& request,
                     RequestBody body, RequestKind kind) {
  const auto [row, is_new] = exchanges_.emplace(id, std::move(admitted));
  PDJOB_CHECK(is_new, id);
  Exchange& exchange = row->second;
  exchange.method = request.method == "GET" ? "GET" : "POST";
  exchange.target = request.path;
  exchange.request_id = reception_.request_id_of(request);
  exchange.rids = body.rids();
  exchange.own_id = request.header(openai::header::kRequestId).empty();
  exchange.trail = watch_.begin(request);
  const TenantConfig& tenant = reception_.config_of(exchange.tenant);
  const bool probes = reception_.is_probe(request, tenant);
  kind.background = !probes && !kind.alone && is_in_background(request, body, reception_);
  exchange.trail.background = kind.background;
  exchange.trail.timed = kind.generates && !kind.alone && !probes;
  exchange.trail.moments.stream = body.stream();
  const bool own_key = config_.own_keys || !reception_.admission().open_to_all();
  exchange.clients_key = !own_key && !request.header("authorization").empty();
  exchange.header_lines = leg_header_lines(request, {.own_key = own_key,
                                                     .traced = exchange.trail.span != nullptr,
                                                     .tenant = tenant.name,
                                                     .background = kind.background});
  if (config_.continuations > 0 && body.stream() && body.resumable() &&
      exchange.sink->takes_chunks()) {
    exchange.may_continue = true;
    exchange.header_lines.append(openai::header::kContinue)
        .append(": " + std::to_string(loop_.unix_seconds()) + "\r\n");
  }
  if (config_.continuations > 0 && kind.generates && !kind.alone && !probes && !body.stream() &&
      body.resumable()) {
    ask_progress(request, exchange);
  }
  kind.tenant = exchange.tenant;
  kind.probes = probes;
  RequestFacts facts = request_facts(request, body, kind, config_, reception_, core_);
  if (exchange.trail.span) {
    exchange.trail.span->attributes.emplace_back("gen_ai.request.model", body.model());
    exchange.trail.span->attributes.emplace_back("pdjob.request_id", exchange.request_id);
  }
  exchange.sink->hold_more(kLegsWithABody * body.text().size());
  exchange.body = std::move(body);
  submit(RequestArrived{id, std::move(facts)});
}

std::string RelayApi::text_of(RequestId id) const {
  const auto exchange = exchanges_.find(id);
  return "request " +
         (exchange == exchanges_.end() ? std::to_string(id.value) : exchange->second.request_id);
}

size_t RelayApi::abort(const openai::AbortRequest& asked, Admission::Tenant tenant) {
  size_t count = 0;
  for (const auto& [id, exchange] : exchanges_) {
    if (!exchange.abortable || exchange.tenant != tenant) {
      continue;
    }
    if (const auto prompts = Aborts::meant(asked, exchange.request_id, exchange.rids)) {
      aborts_.begin(id, *prompts, exchange.rids.size());
      ++count;
    }
  }
  aborts_.step();
  return count;
}

RelayApi::Sight RelayApi::look(RequestId id) const {
  const Exchange& exchange = exchanges_.at(id);
  Sight sight{.begun = exchange.begun,
              .stream = exchange.trail.moments.stream,
              .tenant = exchange.tenant,
              .workers = {}};
  for (auto call = calls_.lower_bound({.request = id});
       call != calls_.end() && call->first.request == id; ++call) {
    if (call->first.stage == Stage::kDecode) {
      sight.workers.push_back(legs_.at(call->second).worker);
    }
  }
  return sight;
}

// No tokens are known here. A stream that has begun is cut: its tokens so far are with the client.
void RelayApi::answer_aborted(RequestId id) {
  const Exchange& exchange = exchanges_.at(id);
  log::info(text_of(id) + " is aborted");
  if (exchange.trail.moments.legs_began == Instant{}) {
    reception_.admission().give_back(exchange.tenant, exchange.tokens_paid);
  }
  ReplySink::Headers headers = {{std::string(openai::header::kRequestId), exchange.request_id}};
  if (exchange.begun) {
    exchange.sink->abort();
  } else if (const auto parsed =
                 openai::parse_api_request(kind_of(exchange.target), exchange.body.text());
             !parsed) {
    reply_json(*exchange.sink, {.status = parsed.error().status,
                                .body = openai::error_body(parsed.error()),
                                .headers = std::move(headers)});
  } else {
    openai::ReplyOptions options = openai::reply_options(*parsed);
    options.id = exchange.request_id;
    options.created = loop_.unix_seconds();
    headers.emplace_back(openai::header::kAborted, "1");
    exchange.sink->reply(
        200, parsed->stream ? openai::kEventStream : "application/json",
        openai::aborted_reply(*parsed, options,
                              {.seconds = seconds(loop_.now() - exchange.trail.moments.arrived),
                               .weight_version = core_.weight_version()}),
        headers);
  }
  client_left(id);
}

void RelayApi::client_left(RequestId id) {
  if (exchanges_.contains(id)) {
    submit(ClientLeft{id});
  }
}

void RelayApi::client_writable(RequestId id) {
  const auto exchange = exchanges_.find(id);
  if (exchange != exchanges_.end() && exchange->second.relayed != net::CallId{}) {
    client_->resume(exchange->second.relayed);
  }
}

void RelayApi::carried_out(const RouterEvent& event) {
  if (std::holds_alternative<WorkersChanged>(event)) {
    for (const auto& then : on_workers_changed_) {
      then();
    }
  }
}

// --- events of legs

void RelayApi::on_interim(net::CallId call, const net::HttpReplyHead& head) {
  const Leg& leg = legs_.at(call);
  const auto found = exchanges_.find(leg.id.request);
  const std::string_view note = head.header(openai::header::kTokens);
  if (note.empty() || leg.id.stage != Stage::kDecode || found == exchanges_.end() ||
      !found->second.told) {
    return;
  }
  Exchange& exchange = found->second;
  if (exchange.teller != call && legs_.contains(exchange.teller)) {
    return;
  }
  exchange.teller = call;
  if (exchange.told->take(note) == openai::ToldTokens::Taken::kNew && exchange.passes_progress) {
    scratch_.assign(openai::header::kTokens).append(": ").append(note).append("\r\n");
    exchange.sink->interim(scratch_);
  }
}

void RelayApi::on_head(net::CallId call, const net::HttpReplyHead& head) {
  PDJOB_CHECK(!runner_.stepping());
  Leg& leg = legs_.at(call);
  leg.framing = head.framing;
  if (leg.span) {
    leg.span->attributes.emplace_back("http.response.status_code", std::to_string(head.status));
  }
  head_ = &head;
  const auto exchange = exchanges_.find(leg.id.request);
  // Another kind of engine, or of reply, would begin the stream anew.
  const bool can_resume =
      !leg.resumes || head.status >= 300 || is_stream_of(exchange->second.record->of_pdjob(), head);
  submit(LegAnswered{.leg = leg.id,
                     .status = can_resume ? head.status : 500,
                     .retry_after = !head.header("retry-after").empty(),
                     .kv_suspect = !head.header(openai::header::kKvSuspect).empty(),
                     .aborted = !head.header(openai::header::kAborted).empty(),
                     .clients_key = exchange != exchanges_.end() && exchange->second.clients_key});
  head_ = nullptr;
}

void RelayApi::on_body(net::CallId call, std::string_view raw) {
  Leg& leg = legs_.at(call);
  if (leg.use == Use::kRelay) {
    relay_body(leg, call, raw);
  } else if (leg.use == Use::kCollect) {
    collect_body(leg, raw);
  }
}

void RelayApi::relay_body(Leg& leg, net::CallId call, std::string_view raw) {
  Exchange& exchange = exchanges_.at(leg.id.request);
  watch_.passed(exchange.trail, leg.framing == net::BodyFraming::kChunked);
  if (exchange.record) {
    scratch_.clear();
    exchange.record->take(raw, scratch_);
    raw = scratch_;
  }
  if (!exchange.sink->write(raw)) {
    client_->pause(call);
  }
  if (exchange.record && exchange.record->broken()) {
    give_up(call);
  } else if (core_.retracts()) {
    take_off(call);
  }
}

void RelayApi::take_off(net::CallId call) {
  const LegId id = legs_.at(call).id;
  Exchange& exchange = exchanges_.at(id.request);
  if (!exchange.record || !exchange.record->resumable()) {
    return;  // Later, or it goes on to its end.
  }
  client_->cancel(call);
  take_leg(call, "taken off for a pause");
  exchange.relayed = {};
  submit(LegTakenOff{id});
}

void RelayApi::give_up(net::CallId call) {
  client_->cancel(call);
  const Leg leg = take_leg(call, "the engine failed");
  Exchange& exchange = exchanges_.at(leg.id.request);
  exchange.relayed = {};
  log::info(text_of(leg.id.request) + ": " + name_of_leg(leg.id) +
            " failed: its engine said so, or wrote something else");
  submit(LegFailed{.leg = leg.id,
                   .error = {ErrorCode::kUnavailable, "its engine failed"},
                   .resumable = exchange.record->resumable(),
                   .reached = true,
                   .before_tokens = !exchange.record->begun()});
}

void RelayApi::collect_body(Leg& leg, std::string_view raw) {
  if (leg.collected.size() + raw.size() > limits::kHttpBodyBytesMax) {
    leg.failed = true;
    leg.collected.clear();
    leg.use = Use::kDrop;
  } else if (leg.framing == net::BodyFraming::kChunked) {
    leg.decoder.decode(raw, leg.collected);
  } else {
    // Leaves room for the scan to read behind it, which avoids a copy.
    leg.collected.reserve(leg.collected.size() + raw.size() + openai::JsonObject::kSlack);
    leg.collected.append(raw);
  }
}

void RelayApi::on_end(net::CallId call) {
  const Leg leg = take_leg(call);
  if (leg.failed) {
    submit(LegFailed{leg.id, {ErrorCode::kCorrupt, "its reply is too long"}});
    return;
  }
  LegEnded ended{leg.id};
  const auto exchange = exchanges_.find(leg.id.request);
  if (leg.id.stage == Stage::kPrefill) {
    metrics().prefilled(loop_.now() - leg.began, loop_.now());
    if (exchange != exchanges_.end()) {
      watch_.prefilled(exchange->second.trail);
    }
  }
  if (leg.use == Use::kCollect && exchange != exchanges_.end()) {
    const std::string& params = exchange->second.returned_params = returned_params(leg.collected);
    ended.kv_params = !params.empty();
    if (const auto address_in = exchange->second.dialect->address_in) {
      ended.kv_address = address_in(params);
    }
  }
  submit(std::move(ended));
}

void RelayApi::on_error(net::CallId call, const Error& error) {
  const Leg leg = take_leg(call, error.message);
  log::info(text_of(leg.id.request) + ": " + name_of_leg(leg.id) + " failed: " + error.message);
  StreamRecord* record =
      leg.use == Use::kRelay ? exchanges_.at(leg.id.request).record.get() : nullptr;
  if (record != nullptr) {
    scratch_.clear();
    record->finish(scratch_);
    if (!scratch_.empty()) {
      exchanges_.at(leg.id.request).sink->write(scratch_);
    }
  }
  if (record != nullptr && record->complete()) {
    submit(LegEnded{leg.id});
  } else {
    submit(LegFailed{.leg = leg.id,
                     .error = error,
                     .resumable = record != nullptr && record->resumable(),
                     .reached = client_->reached()});
  }
}

void RelayApi::end_reconnecting_legs(const std::vector<net::Departure>& left) {
  for (const net::Departure& gone : left) {
    const Worker* worker = core_.workers().find(gone.name);
    if (worker != nullptr && worker->entry.engine_id == gone.engine_id) {
      client_->end_reconnecting({worker->entry.host, worker->entry.port});
    }
  }
}

RelayApi::Leg RelayApi::take_leg(net::CallId call, std::string_view error) {
  const auto row = legs_.find(call);
  PDJOB_CHECK(row != legs_.end(), call);
  Leg leg = std::move(row->second);
  legs_.erase(row);
  calls_.erase(leg.id);
  watch_.end_leg(std::move(leg.span), error);
  return leg;
}

// --- effects

void RelayApi::carry_out(const CancelLeg& effect) {
  const net::CallId call = calls_.at(effect.leg);
  client_->cancel(call);
  take_leg(call, "cancelled");
}

void RelayApi::carry_out(const ReleaseOffer& effect) {
  const Worker* worker = core_.workers().find(effect.worker);
  if (worker == nullptr) {
    return;  // Its rows are gone, too.
  }
  const auto abort = abort_call(worker->entry.abort, effect.transfer);
  if (!abort) {
    return;  // Cancelling the leg frees the rows; otherwise their lease expires.
  }
  net::fetch(loop_, *client_,
             {.to = {worker->entry.host, worker->entry.port},
              .method = abort->method,
              .target = abort->target,
              .header_lines = worker->key_line,
              .body = abort->body,
              .connect_timeout = config_.connect_timeout,
              .head_timeout = kReleaseTimeout,
              .idle_timeout = kReleaseTimeout},
             limits::kKiB,
             [](const Result<net::HttpReply>&) {});  // If it fails, the lease expires.
}

void RelayApi::carry_out(const Relay& effect) {
  PDJOB_CHECK(head_ != nullptr);
  const net::CallId call = calls_.at(effect.leg);
  Leg& leg = legs_.at(call);
  Exchange& exchange = exchanges_.at(effect.leg.request);
  leg.use = Use::kRelay;
  exchange.relayed = call;
  if (exchange.begun) {
    exchange.record->change_worker();
    exchange.sink->change_writer();
    return;
  }
  exchange.begun = true;
  watch_.answered(exchange.trail, head_->status, head_->header(openai::header::kKvVisibleSeconds));
  if (exchange.record && !is_stream_of(exchange.record->of_pdjob(), *head_)) {
    exchange.record.reset();
    exchange.obstacle = Obstacle::kNoTokens;
  }
  // No attempt follows, so the body can go. After an earlier attempt it stays: workers may have
  // been lost, and Blamed logs the body's digest.
  if (!exchange.record && effect.leg.attempt == 1) {
    exchange.body = {};
    exchange.sink->body_freed();
  }
  const bool is_decode = effect.leg.stage == Stage::kDecode;
  RequestTiming& timing = exchange.trail.timing;
  timing.attempts = effect.leg.attempt;
  timing.prefill = watch_.name_of(is_decode ? leg.peer : leg.worker);
  timing.decode = watch_.name_of(is_decode ? leg.worker : leg.peer);
  std::string added =
      header_lines(reception_.admission().rate_headers(exchange.tenant, loop_.now()));
  if (!exchange.degraded.empty()) {
    added.append(openai::header::kDegraded).append(": ").append(exchange.degraded).append("\r\n");
  }
  exchange.sink->begin(*head_, leg.worker,
                       {.request_id = exchange.request_id,
                        .prefill = timing.prefill,
                        .decode = timing.decode,
                        .more = added});
}

void RelayApi::carry_out(const Retried& effect) {
  exchanges_.at(effect.id).degraded = {};  // The next attempt may hand over.
  watch_.note(effect, text_of(effect.id));
}

void RelayApi::carry_out(const LearnTokens& effect) {
  const Exchange& exchange = exchanges_.at(effect.id);
  const RequestBody& body = exchange.body;
  const bool can_ask = body.tokenizable() && body.text().size() <= limits::kTokenizedBytesMax;
  ask_tokens_({.worker = effect.worker,
               .header_lines = exchange.header_lines,
               .body = can_ask ? body.text() : std::string(),
               .answer = {.model = body.model(),
                          .tenant = reception_.config_of(exchange.tenant).name,
                          .blocks = effect.blocks,
                          .prompt_bytes = body.prompt().size(),
                          .tokens = {}}});
}

void RelayApi::carry_out(const Degraded& effect) {
  exchanges_.at(effect.id).degraded =
      effect.hand_over_failed ? "no_hand_over" : "no_prefill_worker";
  watch_.note(effect);
}

void RelayApi::carry_out(const Blamed& effect) {
  const Exchange& exchange = exchanges_.at(effect.id);
  watch_.note(effect, text_of(effect.id), reception_.config_of(exchange.tenant).name,
              exchange.body.is_empty() ? "unknown" : sha256_of(exchange.body.text()));
}

void RelayApi::carry_out(const TakeOff& effect) {
  if (const auto call = calls_.find(effect.leg); call != calls_.end()) {
    take_off(call->second);
  }
}

// Those without a leg wait in the queue, and go on waiting. Rows of batches finish.
void RelayApi::carry_out(const AbortRunning& /*effect*/) {
  for (const auto& [call, leg] : legs_) {
    const auto exchange = exchanges_.find(leg.id.request);
    if (exchange != exchanges_.end() && exchange->second.abortable) {
      aborts_.begin(leg.id.request, {}, exchange->second.rids.size());
    }
  }
  aborts_.step_soon();
}

void RelayApi::carry_out(const Quiet& /*effect*/) {
  if (on_quiet_) {
    on_quiet_();
  }
}

void RelayApi::carry_out(const Complete& effect) {
  const Exchange& exchange = exchanges_.at(effect.id);
  const Outcome outcome = watch_.completed(exchange.trail);
  exchange.sink->end();
  end(effect.id, outcome);
}

void RelayApi::carry_out(const Refuse& effect) {
  const Exchange& exchange = exchanges_.at(effect.id);
  std::vector<std::pair<std::string, std::string>> headers = {
      {std::string(openai::header::kRequestId), exchange.request_id}};
  if (effect.retry_after_seconds > 0) {
    headers.emplace_back("Retry-After", std::to_string(effect.retry_after_seconds));
  }
  log::info(text_of(effect.id) + " is refused: " + effect.error.message);
  if (exchange.trail.moments.legs_began == Instant{}) {
    reception_.admission().give_back(exchange.tenant, exchange.tokens_paid);
  }
  reply_json(*exchange.sink, {.status = effect.error.status,
                              .body = openai::error_body(effect.error),
                              .headers = std::move(headers)});
  end(effect.id, effect.error.status < 500 ? Outcome::kClientError : Outcome::kRefused);
}

void RelayApi::carry_out(const Abort& effect) {
  const Exchange& exchange = exchanges_.at(effect.id);
  Obstacle obstacle = exchange.record ? exchange.record->obstacle() : exchange.obstacle;
  obstacle = obstacle == Obstacle::kNone ? Obstacle::kOff : obstacle;
  metrics().cut(obstacle);
  log::warn(text_of(effect.id) +
            " broke off after its first byte, and could not go on elsewhere (" +
            std::string(to_string(obstacle)) + ")");
  exchange.sink->abort();
  end(effect.id, Outcome::kAborted);
}

void RelayApi::end(RequestId id, Outcome outcome) {
  const auto exchange = exchanges_.find(id);
  Exchange& ended = exchange->second;
  reception_.admission().release(ended.tenant);
  watch_.ended(id, std::move(ended.trail), outcome,
               ended.own_id ? std::move(ended.request_id) : std::string(),
               reception_.config_of(ended.tenant).name);
  exchanges_.erase(exchange);
  aborts_.ended(id);
}

}  // namespace pdjob::router
