#include "router/relay/relay_api.h"

#include <algorithm>
#include <utility>

#include "common/check.h"
#include "common/crypto/sha256.h"
#include "common/limits.h"
#include "common/log.h"
#include "common/parse_number.h"
#include "openai/headers.h"
#include "openai/openai.h"
#include "openai/openai_reply.h"
#include "router/core/verdict.h"
#include "router/prefix_index/prompt_blocks.h"
#include "router/relay/abort_step.h"
#include "router/relay/leg_head.h"

namespace pdjob::router {
namespace {

constexpr Duration kReleaseTimeout = std::chrono::seconds(5);
constexpr Duration kAbortAgain = std::chrono::milliseconds(100);
constexpr double kVisibleSecondsMax = 86400;  // A worker says it.
constexpr size_t kAbortAnswersPerTurn = 64;   // Each one parses a body.
// Each leg sends a copy of the body.
constexpr size_t kLegsWithABody = 2;
// Size of a leg's own header lines, without most values.
constexpr size_t kLegLineBytes = 160;

std::string leg_text(const LegId& leg) {
  return std::string(leg.stage == Stage::kPrefill ? "prefill" : "decode") + " leg, attempt " +
         std::to_string(leg.attempt);
}

// The header is ignored unless it is a whole number of milliseconds.
Duration timeout_of(const net::HttpRequest& request) {
  const uint32_t milliseconds =
      parse_number<uint32_t>(request.header(openai::header::kRequestTimeout)).value_or(0);
  return milliseconds > 0 ? std::chrono::milliseconds(milliseconds) : kForever;
}

std::string header_lines(const Admission::Headers& headers) {
  std::string lines;
  for (const auto& [name, value] : headers) {
    lines.append(name).append(": ").append(value).append("\r\n");
  }
  return lines;
}

void reply_json(ReplySink& sink, const net::EarlyReply& reply) {
  sink.reply(reply.status, "application/json", reply.body, reply.headers);
}

Outcome outcome_of(int status) {
  if (status >= 500 || status == 429) {
    return Outcome::kWorkerError;
  }
  return status >= 300 ? Outcome::kClientError : Outcome::kOk;
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
      admission_(config.tenants),
      probe_check_({config.probe_key}),
      rows_check_({config.batches.rows_key}),
      tracer_(std::move(tracer)),
      leg_prefix_(TransferId{loop.entropy(), loop.entropy()}.to_string() + '-') {}

RelayApi::~RelayApi() {
  for (const auto& timer : {abort_timer_, abort_soon_}) {
    if (timer) {
      loop_.cancel(*timer);
    }
  }
}

// --- events

void RelayApi::route(RequestId id, net::HttpRequest& request, RequestBody body, bool generates,
                     std::unique_ptr<ReplySink> sink) {
  const uint64_t tokens = generates ? body.tokens() : body.prompt_tokens();
  const Admission::Tenant tenant = tenant_of(request);
  if (const auto denial = admit(tenant, tokens)) {
    reply_json(*sink, *denial);
    return;
  }
  begin(id,
        {.sink = std::move(sink),
         .abortable = generates && !body.embeds() && !is_probe(request, tenant_config(tenant)) &&
                      !is_row(request),
         .tenant = tenant,
         .tokens_paid = tokens},
        request, std::move(body), generates);
}

std::optional<net::EarlyReply> RelayApi::let_in(net::HttpRequest& request) {
  if (auto unknown = recognize(request); unknown || admission_.open_to_all()) {
    return unknown;
  }
  const auto denial = admission_.denial_of_request(tenant_of(request), loop_.now());
  return denial ? std::optional(denied(*denial)) : std::nullopt;
}

std::optional<net::EarlyReply> RelayApi::recognize(net::HttpRequest& request) {
  const auto known = identify(request);
  if (const auto* unknown = std::get_if<Admission::Denial>(&known)) {
    return denied(*unknown);
  }
  if (!admission_.open_to_all()) {
    request.account = std::get<Admission::Tenant>(known) + 1;
  }
  return std::nullopt;
}

std::optional<net::EarlyReply> RelayApi::let_in_batch_request(const net::HttpRequest& request) {
  const auto known = identify(request);
  const auto* const unknown = std::get_if<Admission::Denial>(&known);
  const auto denial = unknown != nullptr ? std::optional(*unknown)
                                         : admission_.admit_batch_request(
                                               std::get<Admission::Tenant>(known), loop_.now());
  return denial ? std::optional(denied(*denial)) : std::nullopt;
}

std::variant<Admission::Tenant, Admission::Denial> RelayApi::identify(
    const net::HttpRequest& request) const {
  if (!admission_.open_to_all() && is_row(request)) {
    if (const auto tenant = admission_.find(request.header(openai::header::kBatchTenant))) {
      return *tenant;
    }
  }
  return admission_.identify(request.header("authorization"));
}

bool RelayApi::is_row(const net::HttpRequest& request) const {
  return !rows_check_.open_to_all() && rows_check_.opens(request.header("authorization"));
}

Admission::Tenant RelayApi::tenant_of(const net::HttpRequest& request) const {
  if (admission_.open_to_all()) {
    return 0;
  }
  PDJOB_CHECK(request.account > 0, request.path);
  return request.account - 1;
}

const TenantConfig& RelayApi::tenant_config(Admission::Tenant tenant) const {
  static const TenantConfig nobody;
  return admission_.open_to_all() ? nobody : admission_.tenants()[tenant];
}

std::optional<net::EarlyReply> RelayApi::admit(Admission::Tenant tenant, uint64_t tokens) {
  const auto admitted = admission_.admit(tenant, tokens, loop_.now());
  const auto* denial = std::get_if<Admission::Denial>(&admitted);
  return denial == nullptr ? std::nullopt : std::optional(denied(*denial));
}

void RelayApi::route_admitted(RequestId id, Admission::Tenant tenant,
                              const net::HttpRequest& request, RequestBody body,
                              std::unique_ptr<ReplySink> sink) {
  admission_.enter(tenant);
  // It pays no tokens: they were charged long ago, when it was submitted.
  begin(id, {.sink = std::move(sink), .tenant = tenant}, request, std::move(body),
        /*generates=*/true);
}

void RelayApi::begin(RequestId id, Exchange admitted, const net::HttpRequest& request,
                     RequestBody body, bool generates) {
  const auto [row, is_new] = exchanges_.emplace(id, std::move(admitted));
  PDJOB_CHECK(is_new, id);
  Exchange& exchange = row->second;
  exchange.method = request.method == "GET" ? "GET" : "POST";
  exchange.target = request.path;
  exchange.request_id = request_id_of(request);
  exchange.rids = body.rids();
  exchange.stream = body.stream();
  exchange.own_id = request.header(openai::header::kRequestId).empty();
  exchange.span = tracer_ ? tracer_->begin(request) : nullptr;
  const TenantConfig& tenant = tenant_config(exchange.tenant);
  const bool probes = is_probe(request, tenant);
  exchange.timed = generates && !probes;
  const bool own_key = config_.own_keys || !admission_.open_to_all();
  exchange.clients_key = !own_key && !request.header("authorization").empty();
  exchange.header_lines = leg_header_lines(
      request, {.own_key = own_key, .traced = exchange.span != nullptr, .tenant = tenant.name});
  if (config_.continuations > 0 && body.stream() && body.resumable() &&
      exchange.sink->takes_chunks()) {
    exchange.record = std::make_unique<StreamRecord>();
    exchange.header_lines.append(openai::header::kContinue)
        .append(": " + std::to_string(loop_.unix_seconds()) + "\r\n");
  }
  exchange.arrived = loop_.now();
  std::vector<uint64_t> blocks;
  // A prompt that is read leaves no rows behind.
  if (core_.wants_blocks() && !body.scores_prompt() && !body.embeds()) {
    std::string shape = body.shape();
    if (!tenant.name.empty()) {
      shape.append(1, '\0').append(tenant.name);  // Workers share no KV between tenants.
    }
    blocks = prompt_blocks(body.model(), body.prompt(), shape);
  }
  // A pin overrides the policy. If tenants share the workers, only probes may pin.
  const bool may_pin = admission_.open_to_all() || tenant.name == kProbeTenant;
  const auto pin = [&](std::string_view header) {
    return may_pin ? std::string(request.header(header)) : std::string();
  };
  const bool hands_over = generates && !body.scores_prompt() && !body.embeds() &&
                          (!body.several_prompts() || prefills_several_prompts());
  RequestFacts facts{.model = body.model(),
                     .hands_over = hands_over,
                     .prompt_only = body.prompt_only(),
                     .prompt_tokens = body.prompt_tokens(),
                     .output_tokens = body.output_tokens(),
                     .blocks = std::move(blocks),
                     .session = name_hash(session_of(request, body)),
                     .tenant = exchange.tenant,
                     .weight = tenant.weight,
                     // Rows of batches come behind everybody who waits.
                     .priority = is_row(request) ? 0 : tenant.priority + 1,
                     .timeout = timeout_of(request),
                     .pin_prefill = pin(openai::header::kPinPrefill),
                     .pin_decode = pin(openai::header::kPinDecode),
                     .probes = probes};
  if (exchange.span) {
    exchange.span->attributes.emplace_back("gen_ai.request.model", body.model());
    exchange.span->attributes.emplace_back("pdjob.request_id", exchange.request_id);
  }
  exchange.sink->hold_more(kLegsWithABody * body.text().size());
  exchange.body = std::move(body);
  submit(RequestArrived{id, std::move(facts)});
}

bool RelayApi::is_probe(const net::HttpRequest& request, const TenantConfig& tenant) const {
  return tenant.name == kProbeTenant || (admission_.open_to_all() && !probe_check_.open_to_all() &&
                                         probe_check_.opens(request.header("authorization")));
}

// True if one request may hand over several prompts, whichever prefill worker it goes to.
bool RelayApi::prefills_several_prompts() const {
  bool takes_several = false;
  for (const auto& [id, worker] : core_.workers().all()) {
    if (worker.serves(Stage::kPrefill)) {
      takes_several = dialect_of(worker.entry.protocol, worker.concurrent()).several_prompts;
      if (!takes_several) {
        break;
      }
    }
  }
  return takes_several;
}

std::string_view RelayApi::session_of(const net::HttpRequest& request,
                                      const RequestBody& body) const {
  if (config_.affinity == Affinity::kModel) {
    return body.model();
  }
  for (const std::string_view name : {openai::header::kSessionId, openai::header::kRoutingKey}) {
    if (const std::string_view session = request.header(name); !session.empty()) {
      return session;
    }
  }
  return body.user();
}

net::EarlyReply RelayApi::denied(const Admission::Denial& denial) {
  metrics_.denied(denial.reason);
  if (denial_lines_[static_cast<size_t>(denial.reason)].opens(loop_.now())) {
    log::info(std::string("a request is denied: ") + to_string(denial.reason) + ": " +
              denial.error.message);
  }
  Admission::Headers headers = denial.rates;
  if (denial.retry_after_seconds > 0) {
    headers.emplace_back("Retry-After", std::to_string(denial.retry_after_seconds));
  }
  return {.status = denial.error.status,
          .body = openai::error_body(denial.error),
          .headers = std::move(headers)};
}

std::string RelayApi::leg_name(RequestId id) const {
  return leg_prefix_ + std::to_string(id.value);
}

std::string RelayApi::text_of(RequestId id) const {
  const auto exchange = exchanges_.find(id);
  return "request " +
         (exchange == exchanges_.end() ? std::to_string(id.value) : exchange->second.request_id);
}

std::string RelayApi::request_id_of(const net::HttpRequest& request) {
  const std::string_view given = request.header(openai::header::kRequestId);
  return given.empty() ? "req-" + TransferId{loop_.entropy(), loop_.entropy()}.to_string()
                       : std::string(given);
}

std::optional<net::EarlyReply> RelayApi::charge(Admission::Tenant tenant, const RequestBody& body) {
  auto denial = admit(tenant, body.tokens());
  if (!denial) {
    admission_.release(tenant);
  }
  return denial;
}

std::optional<Admission::Headers> RelayApi::admit_free(ReplySink& sink, Admission::Tenant tenant) {
  if (const auto denial = admit(tenant, 0)) {
    reply_json(sink, *denial);
    return std::nullopt;
  }
  admission_.release(tenant);
  return admission_.rate_headers(tenant, loop_.now());
}

size_t RelayApi::abort(const openai::AbortRequest& asked, Admission::Tenant tenant) {
  size_t count = 0;
  for (const auto& [id, exchange] : exchanges_) {
    if (!exchange.abortable || exchange.tenant != tenant) {
      continue;
    }
    if (const auto prompts = meant(exchange, asked)) {
      begin_abort(id, *prompts);
      ++count;
    }
  }
  step_aborts();
  return count;
}

std::optional<RelayApi::Prompts> RelayApi::meant(const Exchange& exchange,
                                                 const openai::AbortRequest& asked) {
  if (asked.means_exactly(exchange.request_id)) {
    return Prompts{};
  }
  Prompts prompts;
  for (uint32_t index = 0; index < exchange.rids.size(); ++index) {
    if (asked.means(exchange.rids[index])) {
      prompts.insert(index);
    }
  }
  if (prompts.empty()) {
    return std::nullopt;
  }
  return prompts.size() == exchange.rids.size() ? Prompts{} : prompts;
}

void RelayApi::begin_abort(RequestId id, const Prompts& prompts) {
  const auto [row, is_new] = aborting_.try_emplace(id, Ending{loop_.now(), prompts});
  Ending& ending = row->second;
  if (!is_new) {
    if (ending.prompts.empty()) {
      return;  // Under way already.
    }
    ending.prompts.insert(prompts.begin(), prompts.end());
    if (prompts.empty() || ending.prompts.size() == exchanges_.at(id).rids.size()) {
      ending = {.since = loop_.now(), .prompts = {}};
    }
  }
  abort_due_.insert(id);
}

void RelayApi::step_aborts() {
  size_t answered = 0;
  while (!abort_due_.empty() && answered < kAbortAnswersPerTurn) {
    answered += step_abort(abort_due_.extract(abort_due_.begin()).value()) ? 1 : 0;
  }
  std::vector<Asked> asked;
  for (const auto& [to, question] : abort_questions_) {
    asked.push_back(to);
  }
  for (const Asked& to : asked) {
    ask_to_abort(to);
  }
  if (!abort_due_.empty()) {
    step_aborts_soon();
  }
  if (!aborting_.empty() && !abort_timer_) {
    abort_timer_ = loop_.call_at(loop_.now() + kAbortAgain, [this] {
      abort_timer_.reset();
      for (const auto& [id, ending] : aborting_) {
        abort_due_.insert(id);
      }
      step_aborts();
    });
  }
}

void RelayApi::step_aborts_soon() {
  if (!abort_soon_) {
    abort_soon_ = loop_.call_at(loop_.now(), [this] {
      abort_soon_.reset();
      step_aborts();
    });
  }
}

bool RelayApi::step_abort(RequestId id) {
  const auto row = aborting_.find(id);
  if (row == aborting_.end()) {
    return false;  // It has ended.
  }
  const auto& [since, prompts] = row->second;
  const Exchange& exchange = exchanges_.at(id);
  AbortSight sight{.begun = exchange.begun, .stream = exchange.stream, .whole = prompts.empty()};
  std::vector<WorkerId> workers;
  for (auto call = calls_.lower_bound({.request = id});
       call != calls_.end() && call->first.request == id; ++call) {
    if (call->first.stage == Stage::kDecode) {
      sight.at_worker = true;
      const WorkerId worker = legs_.at(call->second).worker;
      if (const Worker* known = core_.workers().find(worker); known && known->is_pdjob()) {
        workers.push_back(worker);
      }
    }
  }
  sight.foreign = workers.empty();
  switch (abort_step(sight, loop_.now() - since)) {
    case AbortStep::kWait:
      return false;
    case AbortStep::kAnswer:
    case AbortStep::kCut:
      answer_aborted(id);
      return true;
    case AbortStep::kAsk:
      break;
  }
  for (const WorkerId worker : workers) {
    auto& names = abort_questions_[{worker, exchange.tenant}].next;
    if (prompts.empty()) {
      names.insert(leg_name(id));
    }
    for (const uint32_t prompt : prompts) {
      names.insert(openai::leg_prompt(leg_name(id), prompt));
    }
  }
  return false;
}

void RelayApi::ask_to_abort(const Asked& asked) {
  const auto row = abort_questions_.find(asked);
  AbortQuestion& question = row->second;
  const Worker* worker = core_.workers().find(asked.first);
  if (question.in_flight) {
    return;
  }
  if (question.next.empty() || worker == nullptr) {
    abort_questions_.erase(row);
    return;
  }
  openai::AbortRequest request;
  while (!question.next.empty() && request.names.size() < limits::kAbortNamesMax) {
    request.names.insert(question.next.extract(question.next.begin()));
  }
  question.in_flight = true;
  const std::string& name = tenant_config(asked.second).name;
  net::fetch(
      loop_, *client_,
      {.to = {worker->entry.host, worker->entry.port},
       .method = "POST",
       .target = "/abort_request",
       .header_lines = name.empty() ? std::string()
                                    : std::string(openai::header::kTenant) + ": " + name + "\r\n",
       .more_header_lines = worker->key_line,
       .body = openai::abort_request_body(request),
       .connect_timeout = config_.connect_timeout,
       .head_timeout = kReleaseTimeout,
       .idle_timeout = kReleaseTimeout},
      limits::kKiB, [this, asked](const Result<net::HttpReply>& /*reply*/) {
        // If it failed, the timer asks again.
        abort_questions_.at(asked).in_flight = false;
        ask_to_abort(asked);
      });
}

// No tokens are known here. A stream that has begun is cut: its tokens so far are with the client.
void RelayApi::answer_aborted(RequestId id) {
  const Exchange& exchange = exchanges_.at(id);
  log::info(text_of(id) + " is aborted");
  if (exchange.legs_began == Instant{}) {
    admission_.give_back(exchange.tenant, exchange.tokens_paid);
  }
  ReplySink::Headers headers = {{std::string(openai::header::kRequestId), exchange.request_id}};
  if (exchange.begun) {
    exchange.sink->abort();
  } else if (const auto parsed =
                 openai::parse_api_request(kind_of(exchange.target), exchange.body.text());
             const auto* error = std::get_if<openai::ApiError>(&parsed)) {
    reply_json(*exchange.sink, {.status = error->status,
                                .body = openai::error_body(*error),
                                .headers = std::move(headers)});
  } else {
    const auto& request = std::get<openai::ApiRequest>(parsed);
    openai::ReplyOptions options = openai::reply_options(request);
    options.id = exchange.request_id;
    options.created = loop_.unix_seconds();
    headers.emplace_back(openai::header::kAborted, "1");
    exchange.sink->reply(200, request.stream ? openai::kEventStream : "application/json",
                         openai::aborted_reply(request, options,
                                               {.seconds = seconds(loop_.now() - exchange.arrived),
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

void RelayApi::on_head(net::CallId call, const net::HttpReplyHead& head) {
  PDJOB_CHECK(!runner_.stepping());
  Leg& leg = legs_.at(call);
  leg.framing = head.framing;
  if (leg.span) {
    leg.span->attributes.emplace_back("http.response.status_code", std::to_string(head.status));
  }
  head_ = &head;
  // A foreign engine would begin the stream anew, or end it without a last chunk.
  const bool can_resume = !leg.resumes || head.status >= 300 ||
                          (head.status == 200 && head.framing == net::BodyFraming::kChunked &&
                           !head.header(openai::header::kWorker).empty());
  const auto exchange = exchanges_.find(leg.id.request);
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
  if (exchange.first_bytes == Instant{}) {
    exchange.first_bytes = loop_.now();
    if (exchange.span) {
      exchange.span->first_byte = loop_.now();
    }
    metrics_.first_byte(loop_.now() - exchange.arrived);
  } else if (leg.framing == net::BodyFraming::kChunked) {
    metrics_.next_bytes(loop_.now() - exchange.last_bytes);
  }
  exchange.last_bytes = loop_.now();
  if (exchange.record) {
    scratch_.clear();
    exchange.record->take(raw, scratch_);
    raw = scratch_;
  }
  if (!exchange.sink->write(raw)) {
    client_->pause(call);
  }
  if (core_.retracts()) {
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
    metrics_.prefilled(loop_.now() - leg.began);
    if (exchange != exchanges_.end()) {
      exchange->second.prefilled = loop_.now();
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
  log::info(text_of(leg.id.request) + ": " + leg_text(leg.id) + " failed: " + error.message);
  const StreamRecord* record =
      leg.use == Use::kRelay ? exchanges_.at(leg.id.request).record.get() : nullptr;
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
  if (leg.span) {
    leg.span->error = error;
    tracer_->end(std::move(leg.span));
  }
  return leg;
}

// --- effects

std::string_view RelayApi::name_of(WorkerId worker, std::string_view gone) const {
  const Worker* row = core_.workers().find(worker);
  return row == nullptr ? gone : row->entry.name;
}

KvWords RelayApi::kv_words(const StartLeg& effect, Exchange& exchange) const {
  if (effect.kv == KvPart::kNone) {
    return {};
  }
  const bool offers = effect.leg.stage == Stage::kPrefill;
  // Null between two hops, if the worker has left after its part.
  const Worker* prefill = core_.workers().find(offers ? effect.worker : effect.peer);
  if (offers) {
    exchange.dialect = &dialect_of(prefill->entry.protocol, prefill->concurrent());
  }
  const KvDialect& dialect = *exchange.dialect;
  return (offers ? dialect.offer : dialect.fetch)({.transfer = effect.transfer,
                                                   .address = effect.kv == KvPart::kFetchReturned
                                                                  ? exchange.returned_params
                                                                  : prefill->kv_address(),
                                                   .request_id = exchange.request_id});
}

std::string RelayApi::leg_body(const StartLeg& effect, const Exchange& exchange,
                               const KvWords& words) const {
  if (effect.leg.stage == Stage::kPrefill && !exchange.dialect->one_body) {
    return exchange.body.prefill_leg(words);
  }
  if (!effect.resumes) {
    return exchange.body.decode_leg(words);
  }
  return exchange.body.decode_leg(words, exchange.record->tokens_json(),
                                  exchange.record->weights_json());
}

void RelayApi::carry_out(const StartLeg& effect) {
  Exchange& exchange = exchanges_.at(effect.leg.request);
  const Worker& picked = *core_.workers().find(effect.worker);
  const net::WorkerEntry& worker = picked.entry;
  const std::string& key_line = picked.key_line;
  if (exchange.legs_began == Instant{}) {
    exchange.legs_began = loop_.now();
    metrics_.queued(loop_.now() - exchange.arrived);
  }
  metrics_.picked(worker.name, effect.leg.stage);
  const KvWords words = kv_words(effect, exchange);
  const std::string& request_id = words.request_id.empty() ? exchange.request_id : words.request_id;
  std::string own_lines;
  own_lines.reserve(kLegLineBytes + request_id.size() + words.header_lines.size() +
                    key_line.size());
  own_lines.append(openai::header::kRequestId)
      .append(": ")
      .append(request_id)
      .append("\r\n")
      .append(words.header_lines);
  own_lines.append(key_line);
  if (effect.leg.stage == Stage::kDecode && exchange.abortable && picked.is_pdjob()) {
    own_lines.append(openai::header::kLeg)
        .append(": ")
        .append(leg_name(effect.leg.request))
        .append("\r\n");
  }
  std::unique_ptr<Span> span;
  if (exchange.span) {
    span = tracer_->begin_child(*exchange.span,
                                effect.leg.stage == Stage::kPrefill ? "prefill" : "decode");
    span->attributes.emplace_back("pdjob.worker", worker.name);
    span->attributes.emplace_back("pdjob.attempt", std::to_string(effect.leg.attempt));
    own_lines.append("traceparent: " + traceparent(span->context) + "\r\n");
  }
  const net::CallId call = client_->start(
      {.to = {worker.host, worker.port},
       .method = exchange.method,
       .target = exchange.target,
       .header_lines = exchange.header_lines,
       .more_header_lines = own_lines,
       .body = exchange.method == "GET" ? std::string() : leg_body(effect, exchange, words),
       .connect_timeout = config_.connect_timeout,
       .head_timeout = config_.request_timeout,
       .idle_timeout = config_.request_timeout},
      *this);
  const bool teaches = effect.kv == KvPart::kOffer && exchange.dialect->address_in != nullptr;
  legs_[call] =
      Leg{.id = effect.leg,
          .worker = effect.worker,
          .peer = effect.peer,
          .began = loop_.now(),
          .use = effect.kv == KvPart::kOfferUnnamed || teaches ? Use::kCollect : Use::kDrop,
          .resumes = effect.resumes,
          .span = std::move(span)};
  calls_[effect.leg] = call;
}

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
  if (const auto visible = parse_number<double>(head_->header(openai::header::kKvVisibleSeconds))) {
    metrics_.kv_moved(*visible);
    exchange.kv_visible = std::chrono::duration_cast<Duration>(
        std::chrono::duration<double>(*visible > 0 ? std::min(*visible, kVisibleSecondsMax) : 0.0));
  }
  exchange.status = head_->status;
  if (head_->status != 200 || head_->framing != net::BodyFraming::kChunked) {
    exchange.record.reset();
  }
  // No attempt follows, so the body can go. After an earlier attempt it stays: workers may have
  // been lost, and Blamed logs the body's digest.
  if (!exchange.record && effect.leg.attempt == 1) {
    exchange.body = {};
    exchange.sink->body_freed();
  }
  const bool is_decode = effect.leg.stage == Stage::kDecode;
  exchange.timing.attempts = effect.leg.attempt;
  exchange.timing.prefill = name_of(is_decode ? leg.peer : leg.worker);
  exchange.timing.decode = name_of(is_decode ? leg.worker : leg.peer);
  std::string added = header_lines(admission_.rate_headers(exchange.tenant, loop_.now()));
  if (!exchange.degraded.empty()) {
    added.append(openai::header::kDegraded).append(": ").append(exchange.degraded).append("\r\n");
  }
  exchange.sink->begin(*head_, leg.worker,
                       {.request_id = exchange.request_id,
                        .prefill = exchange.timing.prefill,
                        .decode = exchange.timing.decode,
                        .more = added});
}

void RelayApi::carry_out(const PairSuspected& effect) {
  metrics_.pair_suspected();
  const Worker* prefill = core_.workers().find(effect.prefill);
  const Worker* decode = core_.workers().find(effect.decode);
  if (prefill != nullptr && decode != nullptr) {
    log::warn("KV from " + prefill->entry.name + " to " + decode->entry.name +
              " comes damaged again and again: the pair is avoided for a while");
  }
}

void RelayApi::carry_out(const Retried& effect) {
  exchanges_.at(effect.id).degraded = {};  // The next attempt may hand over.
  metrics_.retried(effect.reason);
  log::warn(text_of(effect.id) + " is retried: " + std::string(name_of(effect.worker, "a worker")) +
            ' ' + to_string(effect.reason));
}

void RelayApi::carry_out(const OutOfRetries& effect) {
  metrics_.out_of_retries();
  log::info(text_of(effect.id) + " is not tried again: too many of late were (retry_budget)");
}

void RelayApi::carry_out(const Hedged& effect) {
  metrics_.hedged();
  log::info(text_of(effect.id) + " is tried at another pair, too: " +
            std::string(name_of(effect.worker)) + " is slow with its prompt");
}

void RelayApi::carry_out(const LearnTokens& effect) {
  const Exchange& exchange = exchanges_.at(effect.id);
  const RequestBody& body = exchange.body;
  const bool can_ask = body.tokenizable() && body.text().size() <= limits::kTokenizedBytesMax;
  ask_tokens_({.worker = effect.worker,
               .header_lines = exchange.header_lines,
               .body = can_ask ? body.text() : std::string(),
               .answer = {.model = body.model(),
                          .tenant = tenant_config(exchange.tenant).name,
                          .blocks = effect.blocks,
                          .prompt_bytes = body.prompt().size(),
                          .tokens = {}}});
}

void RelayApi::carry_out(const Degraded& effect) {
  metrics_.degraded();
  exchanges_.at(effect.id).degraded =
      effect.hand_over_failed ? "no_hand_over" : "no_prefill_worker";
  if (degraded_warning_.opens(loop_.now())) {
    log::warn("no prefill worker is usable: decode workers prefill by themselves");
  }
}

void RelayApi::carry_out(const Bypassed& effect) { metrics_.bypassed(effect.reason); }

void RelayApi::carry_out(const Continued& effect) {
  metrics_.continued();
  log::warn(text_of(effect.id) + " goes on elsewhere: " +
            std::string(name_of(effect.worker, "its worker")) + " broke off");
}

void RelayApi::carry_out(const Blamed& effect) {
  const Exchange& exchange = exchanges_.at(effect.id);
  const std::string& tenant = tenant_config(exchange.tenant).name;
  metrics_.blamed(tenant);
  log::error(text_of(effect.id) + (tenant.empty() ? "" : " of tenant " + tenant) +
             " is not given on: " + std::to_string(effect.losses) +
             " workers crashed or hung while they ran it; SHA-256 " +
             (exchange.body.is_empty() ? "unknown" : sha256_of(exchange.body.text())));
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
      begin_abort(leg.id.request, {});
    }
  }
  step_aborts_soon();
}

void RelayApi::carry_out(const Quiet& /*effect*/) {
  if (on_quiet_) {
    on_quiet_();
  }
}

void RelayApi::carry_out(const WorkerAvoided& effect) {
  if (avoided_warning_.opens(loop_.now())) {
    log::warn("requests avoid " + std::string(name_of(effect.worker, "a worker")) + ": " +
              answer_text(effect.status));
  }
}

void RelayApi::carry_out(const Complete& effect) {
  const Exchange& exchange = exchanges_.at(effect.id);
  if (outcome_of(exchange.status) == Outcome::kOk && exchange.first_bytes != Instant{}) {
    metrics_.decoded(loop_.now() - exchange.first_bytes);
  }
  exchange.sink->end();
  end(effect.id, outcome_of(exchange.status));
}

void RelayApi::carry_out(const Refuse& effect) {
  const Exchange& exchange = exchanges_.at(effect.id);
  std::vector<std::pair<std::string, std::string>> headers = {
      {std::string(openai::header::kRequestId), exchange.request_id}};
  if (effect.retry_after_seconds > 0) {
    headers.emplace_back("Retry-After", std::to_string(effect.retry_after_seconds));
  }
  log::info(text_of(effect.id) + " is refused: " + effect.error.message);
  if (exchange.legs_began == Instant{}) {
    admission_.give_back(exchange.tenant, exchange.tokens_paid);
  }
  reply_json(*exchange.sink, {.status = effect.error.status,
                              .body = openai::error_body(effect.error),
                              .headers = std::move(headers)});
  end(effect.id, effect.error.status < 500 ? Outcome::kClientError : Outcome::kRefused);
}

void RelayApi::carry_out(const Abort& effect) {
  log::warn(text_of(effect.id) + " broke off after its first byte");
  exchanges_.at(effect.id).sink->abort();
  end(effect.id, Outcome::kAborted);
}

void RelayApi::carry_out(const Forget& effect) { end(effect.id, Outcome::kClientGone); }

void RelayApi::carry_out(const Drained& /*effect*/) { on_drained_(); }

void RelayApi::end_trace(Exchange& exchange, Outcome outcome) {
  exchange.span->attributes.emplace_back("pdjob.outcome", to_string(outcome));
  if (exchange.status > 0) {
    exchange.span->attributes.emplace_back("http.response.status_code",
                                           std::to_string(exchange.status));
  }
  if (outcome != Outcome::kOk && outcome != Outcome::kClientError) {
    exchange.span->error = to_string(outcome);
  }
  tracer_->end(std::move(exchange.span));
}

void RelayApi::keep_timing(RequestId id, Exchange& exchange, Outcome outcome) {
  RequestTiming& timing = exchange.timing;
  timing.number = id.value;
  timing.request_id = exchange.own_id ? std::move(exchange.request_id) : "";
  timing.tenant = tenant_config(exchange.tenant).name;
  timing.status = exchange.status;
  timing.outcome = to_string(outcome);
  timing.stream = exchange.stream;
  timing.ended = loop_.now();
  timing.phases = phases_of({.arrived = exchange.arrived,
                             .legs_began = exchange.legs_began,
                             .prefilled = exchange.prefilled,
                             .first_bytes = exchange.first_bytes,
                             .ended = timing.ended,
                             .kv_visible = exchange.kv_visible,
                             .stream = exchange.stream});
  timings_.add(std::move(timing));
}

std::string RelayApi::timings_json(const net::HttpRequest& request) const {
  const bool knows =
      !probe_check_.open_to_all() && probe_check_.opens(request.header("authorization"));
  return knows ? timings_.json(loop_.now(), loop_.unix_seconds()) : "";
}

std::string RelayApi::metrics_text() {
  if (tracer_) {
    metrics_.spans_dropped(tracer_->spans_dropped());
  }
  if (tls_ != nullptr) {
    metrics_.tls(tls_->counts(), tls_->certificate().not_after);
  }
  return metrics_.text(core_, loop_.now());
}

void RelayApi::end(RequestId id, Outcome outcome) {
  const auto exchange = exchanges_.find(id);
  metrics_.ended(outcome, loop_.now() - exchange->second.arrived);
  admission_.release(exchange->second.tenant);
  if (exchange->second.span) {
    end_trace(exchange->second, outcome);
  }
  if (exchange->second.timed) {
    keep_timing(id, exchange->second, outcome);
  }
  exchanges_.erase(exchange);
  aborting_.erase(id);
}

}  // namespace pdjob::router
