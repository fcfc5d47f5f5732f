#include "router/router.h"

#include <algorithm>

#include "common/check.h"

namespace pdjob::router {
namespace {

// What a reply's head says about the worker, the request, and what to do next.
enum class Verdict {
  kGood,
  kClientError,     // Of the request itself: no other worker would say otherwise.
  kOverloaded,      // Healthy, but asks for time.
  kHandOverFailed,  // A decode worker did not get the KV: not its own fault.
  kUnable,          // It cannot now, for whatever reason; perhaps the hand-over.
  kFailed,
};

Verdict verdict_on(const LegAnswered& answer) {
  if (answer.status == 429 || (answer.status == 503 && answer.retry_after)) {
    return Verdict::kOverloaded;
  }
  if (answer.status == 502) {
    return Verdict::kHandOverFailed;
  }
  if (answer.status == 503) {
    return Verdict::kUnable;
  }
  if (answer.status >= 500 || answer.status < 200) {
    return Verdict::kFailed;
  }
  return answer.status >= 300 ? Verdict::kClientError : Verdict::kGood;
}

constexpr uint32_t kRetryAfterSeconds = 1;

}  // namespace

const char* to_string(RetryReason reason) {
  switch (reason) {
    case RetryReason::kUnreachable:
      return "unreachable";
    case RetryReason::kFailed:
      return "failed";
    case RetryReason::kOverloaded:
      return "overloaded";
    case RetryReason::kWorkerLeft:
      return "worker_left";
  }
  return "unknown";
}

Router::Router(const RouterConfig& config, uint64_t seed)
    : config_(config),
      random_(seed),
      prefill_policy_(make_policy(config.prefill_policy)),
      decode_policy_(make_policy(config.decode_policy)) {}

void Router::step(const RouterEvent& event, Instant now, std::vector<RouterEffect>& effects) {
  Turn turn{now, effects};
  const bool had_requests = !requests_.empty();
  std::visit([&](const auto& one) { on(one, turn); }, event);
  const bool emptied = had_requests || std::holds_alternative<DrainRequested>(event);
  if (draining_ && emptied && requests_.empty()) {
    effects.emplace_back(Drained{});
  }
}

Instant Router::next_wakeup() const { return wakes_.empty() ? kNever : wakes_.begin()->first; }

bool Router::usable() const {
  for (const auto& [id, worker] : table_.all()) {
    if (worker.entry.role == net::Role::kBoth) {
      return true;
    }
    const bool alone = config_.fallback == Fallback::kDecodeAlone;
    if (worker.serves(Stage::kDecode) &&
        (alone || table_.any(Stage::kPrefill, worker.entry.model))) {
      return true;
    }
  }
  return false;
}

size_t Router::requests_queued() const {
  return static_cast<size_t>(std::count_if(requests_.begin(), requests_.end(), [](const auto& row) {
    return row.second.state == State::kQueued;
  }));
}

// --- arrival and choice

void Router::on(const RequestArrived& event, Turn& turn) {
  PDJOB_CHECK(!requests_.contains(event.id), event.id);
  if (const auto error = refusal_of(event.facts)) {
    turn.effects.emplace_back(
        Refuse{event.id, *error, error->status == 503 ? kRetryAfterSeconds : 0});
    return;
  }
  Request& request = requests_[event.id];
  request.id = event.id;
  request.facts = event.facts;
  request.deadline = turn.now + config_.request_timeout;
  request.wake = request.deadline;
  wakes_.emplace(request.wake, request.id);
  place(request, turn);
}

std::optional<net::ApiError> Router::refusal_of(const RequestFacts& facts) const {
  if (draining_) {
    return net::to_api_error({ErrorCode::kUnavailable, "this router is shutting down"});
  }
  if (requests_.size() >= config_.requests_max) {
    return net::to_api_error({ErrorCode::kOverloaded, "too many requests are alive"});
  }
  // Before any worker is known, no model can be called unknown.
  if (!table_.all().empty() && !table_.knows_model(facts.model)) {
    return net::invalid_request("The model `" + facts.model + "` does not exist.", "model",
                                "model_not_found", 404);
  }
  const auto missing = [this](const std::string& pin, Stage stage) {
    const Worker* worker = table_.find(pin);
    return !pin.empty() && (worker == nullptr || !worker->serves(stage));
  };
  if (missing(facts.pin_prefill, Stage::kPrefill) || missing(facts.pin_decode, Stage::kDecode)) {
    return net::to_api_error({ErrorCode::kUnavailable, "a pinned worker is not there"});
  }
  return std::nullopt;
}

// Not where it would be the only one: suspicion orders the choice, it refuses nothing.
bool Router::is_avoided(Stage stage, const Worker& worker, const Request& request,
                        std::optional<WorkerId> decode, Instant now) const {
  if (suspicions_.empty()) {
    return false;
  }
  if (stage == Stage::kPrefill) {
    return decode && suspicions_.avoided(worker.id, *decode, now);
  }
  // A decode worker is avoided if all that could prefill for it are.
  const auto partners = table_.candidates(Stage::kPrefill, worker.entry.model, request.failed, now);
  return worker.entry.role == net::Role::kDecode && !partners.empty() &&
         std::ranges::all_of(partners, [&](const Worker* partner) {
           return suspicions_.avoided(partner->id, worker.id, now);
         });
}

std::optional<WorkerId> Router::pick(Stage stage, const Request& request, const std::string& model,
                                     std::optional<WorkerId> decode, Instant now) {
  const std::string& pin =
      stage == Stage::kPrefill ? request.facts.pin_prefill : request.facts.pin_decode;
  if (!pin.empty()) {
    const Worker* worker = table_.find(pin);
    return worker == nullptr ? std::nullopt : std::optional(worker->id);
  }
  std::vector<Candidate> candidates;
  std::vector<Candidate> avoided;
  for (const Worker* worker : table_.candidates(stage, model, request.failed, now)) {
    (is_avoided(stage, *worker, request, decode, now) ? avoided : candidates)
        .push_back({worker->id, worker->load()});
  }
  if (candidates.empty()) {
    candidates = std::move(avoided);
  }
  if (candidates.empty()) {
    return std::nullopt;
  }
  return (stage == Stage::kPrefill ? prefill_policy_ : decode_policy_)->choose(candidates, random_);
}

std::optional<Router::Choice> Router::choose(const Request& request, Instant now) {
  const auto decode = pick(Stage::kDecode, request, request.facts.model, std::nullopt, now);
  if (!decode) {
    return std::nullopt;
  }
  const Worker& worker = *table_.find(*decode);
  if (worker.entry.role == net::Role::kBoth || !request.facts.one_prompt) {
    return Choice{.decode = *decode, .prefill = std::nullopt};
  }
  // Both halves must hold the same model, also when the client named none.
  const auto prefill = pick(Stage::kPrefill, request, worker.entry.model, decode, now);
  if (prefill) {
    return Choice{.decode = *decode, .prefill = prefill};
  }
  if (config_.fallback == Fallback::kRefuse || request.prefill_overloaded) {
    return std::nullopt;
  }
  return Choice{.decode = *decode, .prefill = std::nullopt, .degraded = true};
}

void Router::place(Request& request, Turn& turn) {
  if (const auto choice = choose(request, turn.now)) {
    send(request, *choice, turn);
  } else {
    enqueue(request, turn.now);
  }
}

void Router::place_queued(Turn& turn) {
  for (auto& [id, request] : requests_) {
    if (request.state == State::kQueued) {
      place(request, turn);
    }
  }
}

void Router::enqueue(Request& request, Instant now) {
  if (request.state != State::kQueued || request.queue_deadline == Instant{}) {
    request.queue_deadline = now + config_.queue_timeout;
  }
  request.state = State::kQueued;
  // Who failed may be asked again after its back-off; somebody new wakes the queue at once.
  Instant when = std::min(request.queue_deadline, request.deadline);
  for (const WorkerId id : request.failed) {
    if (const Worker* worker = table_.find(id)) {
      when = std::min(when, std::max(worker->retry_at, now + WorkerTable::kBackoffFirst));
    }
  }
  set_wake(request, when);
}

// --- legs

void Router::send(Request& request, const Choice& choice, Turn& turn) {
  request.attempt += 1;
  request.prefill = {};
  request.decode = {.worker = choice.decode};
  set_wake(request, request.deadline);
  if (choice.degraded) {
    turn.effects.emplace_back(Degraded{request.id});
  }
  if (!choice.prefill) {
    request.state = State::kDecoding;
    start_leg(request, Stage::kDecode, {.worker = choice.decode, .kv = KvPart::kNone}, turn);
    return;
  }
  request.prefill.worker = *choice.prefill;
  if (!table_.find(*choice.prefill)->concurrent()) {
    request.state = State::kPrefilling;
    start_leg(request, Stage::kPrefill, {.worker = *choice.prefill, .kv = KvPart::kOfferUnnamed},
              turn);
    return;
  }
  request.state = State::kConcurrent;
  const TransferId transfer{random_.next(), random_.next()};
  request.transfer = transfer;
  start_leg(request, Stage::kPrefill,
            {.worker = *choice.prefill, .kv = KvPart::kOffer, .transfer = transfer}, turn);
  start_leg(request, Stage::kDecode,
            {.worker = choice.decode,
             .kv = KvPart::kFetch,
             .peer = *choice.prefill,
             .transfer = transfer},
            turn);
}

void Router::send_second_hop(Request& request, bool kv_params, Turn& turn) {
  if (!kv_params && config_.fallback == Fallback::kRefuse) {
    request.failed.push_back(request.prefill.worker);
    retry(request, RetryReason::kFailed, request.prefill.worker, "its reply names no KV", turn);
    return;
  }
  if (!kv_params) {
    turn.effects.emplace_back(Degraded{request.id});
  }
  request.state = State::kDecoding;
  start_leg(request, Stage::kDecode,
            {.worker = request.decode.worker,
             .kv = kv_params ? KvPart::kFetchReturned : KvPart::kNone,
             .peer = request.prefill.worker},
            turn);
}

void Router::start_leg(Request& request, Stage stage, StartLeg effect, Turn& turn) {
  Leg& leg = leg_of(request, stage);
  PDJOB_CHECK(!leg.running && leg.worker == effect.worker, request.id);
  leg.running = true;
  leg.tokens =
      request.facts.prompt_tokens + (stage == Stage::kDecode ? request.facts.output_tokens : 0);
  table_.begin(leg.worker, leg.tokens, turn.now);
  effect.leg = {request.id, request.attempt, stage};
  turn.effects.emplace_back(effect);
}

void Router::end_leg(Request& request, Stage stage) {
  Leg& leg = leg_of(request, stage);
  PDJOB_CHECK(leg.running, request.id);
  leg.running = false;
  table_.end(leg.worker, leg.tokens);
}

void Router::cancel_leg(Request& request, Stage stage, Turn& turn) {
  if (leg_of(request, stage).running) {
    end_leg(request, stage);
    turn.effects.emplace_back(CancelLeg{{request.id, request.attempt, stage}});
  }
}

void Router::cancel_legs(Request& request, Turn& turn) {
  drop_prefill(request, turn);
  cancel_leg(request, Stage::kDecode, turn);
}

// Nobody will fetch this attempt's KV any more. The worker is told even if its leg is cancelled:
// its reply may be under way already, and then its rows would stay until their lease is over.
void Router::drop_prefill(Request& request, Turn& turn) {
  cancel_leg(request, Stage::kPrefill, turn);
  if (request.transfer && table_.find(request.prefill.worker) != nullptr) {
    turn.effects.emplace_back(ReleaseOffer{request.prefill.worker, *request.transfer});
  }
  request.transfer.reset();
}

// --- what legs say

void Router::on(const LegAnswered& event, Turn& turn) {
  Request* request = find_running(event.leg);
  if (request == nullptr) {
    return;
  }
  const Stage stage = event.leg.stage;
  const WorkerId worker = leg_of(*request, stage).worker;
  const Verdict verdict = verdict_on(event);
  if (verdict == Verdict::kFailed) {
    table_.note_failed(worker, turn.now);
  } else {
    table_.note_good(worker);
  }
  if (event.kv_suspect && stage == Stage::kDecode && request->prefill.worker != WorkerId{}) {
    suspicions_.note(request->prefill.worker, worker, turn.now);
    turn.effects.emplace_back(PairSuspected{request->prefill.worker, worker});
  }
  if (request->state == State::kRelaying || request->state == State::kAnswered) {
    return;  // The other leg has been chosen for the client already.
  }
  if (verdict == Verdict::kGood && stage == Stage::kDecode) {
    relay(*request, stage, turn);
  } else if (verdict == Verdict::kClientError) {
    relay_refusal(*request, stage, turn);
  } else if (verdict != Verdict::kGood) {
    answer_badly(*request, event, turn);
  }
}

void Router::relay(Request& request, Stage stage, Turn& turn) {
  // A prefill leg beside a decode leg that answers well has moved its KV, and ends by itself in a
  // moment.
  request.transfer.reset();
  request.state = State::kRelaying;
  request.relayed = stage;
  turn.effects.emplace_back(Relay{{request.id, request.attempt, stage}});
}

// This leg's reply, which is no good one, goes to the client.
void Router::relay_refusal(Request& request, Stage stage, Turn& turn) {
  if (stage == Stage::kPrefill) {
    cancel_leg(request, Stage::kDecode, turn);
  } else {
    drop_prefill(request, turn);
  }
  relay(request, stage, turn);
}

// The worker refused or failed with an HTTP answer: another pair, now or when there is one. The
// client sees this very answer after the last attempt, and at once if everybody is overloaded: its
// Retry-After says more than waiting here would.
void Router::answer_badly(Request& request, const LegAnswered& answer, Turn& turn) {
  const Stage stage = answer.leg.stage;
  const Verdict verdict = verdict_on(answer);
  const WorkerId worker = leg_of(request, stage).worker;
  // A decode worker cannot always tell whose fault a failed hand-over was, so its prefill worker is
  // avoided too.
  const bool paired = stage == Stage::kDecode && request.prefill.worker != WorkerId{};
  const bool ambiguous = paired && verdict != Verdict::kOverloaded;
  if (ambiguous) {
    request.failed.push_back(request.prefill.worker);
  }
  if (!ambiguous || verdict != Verdict::kHandOverFailed) {
    request.failed.push_back(worker);
  }
  if (verdict == Verdict::kOverloaded && stage == Stage::kPrefill) {
    request.prefill_overloaded = true;
  }
  const bool may_retry = request.attempt < attempts_max(request);
  std::optional<Choice> choice;
  if (may_retry) {
    choice = choose(request, turn.now);
    if (!choice && ambiguous) {
      std::erase(request.failed,
                 worker);  // It may do better with another prefill worker, or with none.
      choice = choose(request, turn.now);
    }
  }
  if (!may_retry || (!choice && verdict == Verdict::kOverloaded)) {
    relay_refusal(request, stage, turn);
    return;
  }
  request.last_failure = "status " + std::to_string(answer.status);
  cancel_legs(request, turn);
  const RetryReason reason =
      verdict == Verdict::kOverloaded ? RetryReason::kOverloaded : RetryReason::kFailed;
  turn.effects.emplace_back(Retried{request.id, reason, worker});
  if (choice) {
    send(request, *choice, turn);
  } else {
    enqueue(request, turn.now);
  }
}

void Router::on(const LegEnded& event, Turn& turn) {
  Request* request = find_running(event.leg);
  if (request == nullptr) {
    return;
  }
  const Stage stage = event.leg.stage;
  end_leg(*request, stage);
  if (request->state == State::kAnswered) {
    erase(*request);
  } else if (request->state == State::kRelaying) {
    if (stage == request->relayed) {
      complete(*request, turn);
    }
  } else {
    PDJOB_CHECK(stage == Stage::kPrefill, "a decode leg answers before it ends", request->id);
    if (request->state == State::kPrefilling) {
      send_second_hop(*request, event.kv_params, turn);
    }
  }
}

void Router::on(const LegFailed& event, Turn& turn) {
  Request* request = find_running(event.leg);
  if (request == nullptr) {
    return;
  }
  const Stage stage = event.leg.stage;
  const WorkerId worker = leg_of(*request, stage).worker;
  end_leg(*request, stage);
  table_.note_failed(worker, turn.now);
  if (stage == Stage::kPrefill) {
    request->transfer.reset();  // A worker whose client's connection broke has withdrawn the offer.
  }
  if (request->state == State::kAnswered) {
    erase(*request);
  } else if (request->state == State::kRelaying) {
    if (stage == request->relayed) {
      abort(*request, turn);  // Continuing the stream on another pair will start here.
    }
  } else {
    request->failed.push_back(worker);
    retry(*request, RetryReason::kUnreachable, worker, event.error.message, turn);
  }
}

// Another pair, now or when there is one. Requires: no reply of this attempt can be relayed.
void Router::retry(Request& request, RetryReason reason, WorkerId worker, const std::string& why,
                   Turn& turn) {
  cancel_legs(request, turn);
  if (request.attempt >= attempts_max(request)) {
    refuse(
        request,
        {ErrorCode::kUnavailable, "no worker could serve the request; the last one failed: " + why},
        turn);
    return;
  }
  request.last_failure = why;
  turn.effects.emplace_back(Retried{request.id, reason, worker});
  place(request, turn);
}

// --- the client and the workers come and go

void Router::on(const ClientLeft& event, Turn& turn) {
  Request* request = find(event.id);
  if (request == nullptr || request->state == State::kAnswered) {
    return;
  }
  cancel_legs(*request, turn);
  turn.effects.emplace_back(Forget{event.id});
  erase(*request);
}

void Router::on(const WorkersChanged& event, Turn& turn) {
  const std::vector<WorkerId> gone = table_.replace(event.workers);
  suspicions_.forget(gone);
  const auto is_gone = [&gone](WorkerId id) {
    return std::find(gone.begin(), gone.end(), id) != gone.end();
  };
  std::vector<RequestId> bereft;
  for (const auto& [id, request] : requests_) {
    const bool waiting = request.state == State::kConcurrent ||
                         request.state == State::kPrefilling || request.state == State::kDecoding;
    // A prefill worker that has done its part may leave; what is being relayed lives and dies with
    // its connection.
    const bool needs_prefill = request.prefill.running || request.state == State::kConcurrent;
    if (waiting &&
        (is_gone(request.decode.worker) || (needs_prefill && is_gone(request.prefill.worker)))) {
      bereft.push_back(id);
    }
  }
  for (const RequestId id : bereft) {
    Request& request = requests_.at(id);
    const WorkerId worker =
        is_gone(request.decode.worker) ? request.decode.worker : request.prefill.worker;
    retry(request, RetryReason::kWorkerLeft, worker, "it left", turn);
  }
  place_queued(turn);
}

void Router::on(const LoadChanged& event, Turn& /*turn*/) {
  table_.set_load(event.name, event.engine_id, event.load);
}

void Router::on(const WorkerProbed& event, Turn& turn) {
  const Worker* worker = table_.find(event.name);
  if (worker == nullptr) {
    return;
  }
  if (!event.reachable) {
    table_.note_failed(worker->id, turn.now);
    return;
  }
  if (worker->failures > 0) {
    table_.note_good(worker->id);
    for (auto& [id, request] : requests_) {
      std::erase(request.failed, worker->id);
    }
    place_queued(turn);
  }
}

void Router::on(const DrainRequested& /*event*/, Turn& /*turn*/) { draining_ = true; }

// --- time

void Router::on(const TimePassed& /*event*/, Turn& turn) {
  while (!wakes_.empty() && wakes_.begin()->first <= turn.now) {
    wake(requests_.at(wakes_.begin()->second), turn);
  }
}

void Router::wake(Request& request, Turn& turn) {
  const bool overdue = turn.now >= request.deadline;
  if (request.state == State::kAnswered) {
    cancel_legs(request, turn);
    erase(request);
  } else if (request.state == State::kRelaying) {
    abort(request, turn);
  } else if (overdue) {
    refuse(request, {ErrorCode::kTimeout, "the request took longer than request_timeout"}, turn);
  } else if (turn.now >= request.queue_deadline) {
    const std::string& why = request.last_failure;
    refuse(request,
           {ErrorCode::kUnavailable,
            "no usable pair of workers" + (why.empty() ? "" : "; the last one failed: " + why)},
           turn);
  } else {
    request.failed.clear();
    place(request, turn);
  }
}

// --- ends

void Router::refuse(Request& request, const Error& error, Turn& turn) {
  cancel_legs(request, turn);
  const net::ApiError api_error = net::to_api_error(error);
  turn.effects.emplace_back(
      Refuse{request.id, api_error, api_error.status == 503 ? kRetryAfterSeconds : 0});
  erase(request);
}

void Router::complete(Request& request, Turn& turn) {
  turn.effects.emplace_back(Complete{request.id});
  if (!request.prefill.running && !request.decode.running) {
    erase(request);
    return;
  }
  request.state = State::kAnswered;
  set_wake(request, turn.now + kLingerMax);
}

void Router::abort(Request& request, Turn& turn) {
  cancel_legs(request, turn);
  turn.effects.emplace_back(Abort{request.id});
  erase(request);
}

void Router::erase(Request& request) {
  PDJOB_CHECK(!request.prefill.running && !request.decode.running, request.id);
  wakes_.erase({request.wake, request.id});
  requests_.erase(request.id);
}

// --- lookup

void Router::set_wake(Request& request, Instant when) {
  if (when != request.wake) {
    wakes_.erase({request.wake, request.id});
    wakes_.emplace(when, request.id);
    request.wake = when;
  }
}

Router::Request* Router::find(RequestId id) {
  const auto row = requests_.find(id);
  return row == requests_.end() ? nullptr : &row->second;
}

// The request of a leg that still counts; null for what is late of a cancelled or earlier one.
Router::Request* Router::find_running(const LegId& leg) {
  Request* request = find(leg.request);
  return request != nullptr && request->attempt == leg.attempt &&
                 leg_of(*request, leg.stage).running
             ? request
             : nullptr;
}

}  // namespace pdjob::router
