#include "router/core/router.h"

#include <algorithm>
#include <utility>

#include "common/check.h"

namespace pdjob::router {
namespace {

constexpr uint32_t kRetryAfterSeconds = 1;
Error queue_full() { return {ErrorCode::kOverloaded, "too many requests wait (queue_max)"}; }
// Requests for one model that may fail to find a worker before the rest of its queue is skipped. If
// free room suits any request, it suits one of the first.
constexpr size_t kFailuresMax = 4;

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

Router::Router(const RouterConfig& config, Policies policies, uint64_t seed, BitSource id_bits)
    : config_(config),
      random_(seed),
      id_bits_(std::move(id_bits)),
      policies_(std::move(policies)),
      retries_(config.retry_budget) {}

Router::Router(const RouterConfig& config, uint64_t seed)
    : Router(config,
             {.prefill = make_policy(config.prefill_policy),
              .decode = make_policy(config.decode_policy)},
             seed, [bits = Random(mix(seed))]() mutable { return bits.next(); }) {}

void Router::step(const RouterEvent& event, Instant now, std::vector<RouterEffect>& effects) {
  Turn turn{now, effects};
  const bool had_requests = !requests_.empty();
  std::visit([&](const auto& one) { on(one, turn); }, event);
  if (std::exchange(room_made_, false)) {
    place_queued(kFailuresMax, turn);
  }
  look_if_quiet(turn);
  const bool emptied = had_requests || std::holds_alternative<DrainRequested>(event);
  if (draining_ && emptied && requests_.empty()) {
    effects.emplace_back(Drained{});
  }
}

Instant Router::next_wakeup() const { return wakes_.empty() ? kNever : wakes_.begin()->first; }

bool Router::usable(std::string_view model) const {
  for (const auto& [id, worker] : table_.all()) {
    if (worker.silent || !worker.serves(model)) {
      continue;
    }
    if (worker.entry.role == net::Role::kBoth) {
      return true;
    }
    const bool alone = config_.fallback == Fallback::kDecodeAlone;
    if (worker.serves(Stage::kDecode) &&
        (alone || table_.any(Stage::kPrefill, worker.entry.model))) {
      return true;
    }
    if (config_.bypass_busy_requests > 0 && worker.is_pdjob()) {
      return true;
    }
  }
  return false;
}

// A request that comes while the workers start waits as long as the one that started them.
bool Router::serves(Instant now) const {
  const bool wakes = asleep_ ? config_.queue_timeout > Duration::zero() : now < wakes_until_;
  return usable() || (wakes && !refusal_of({}) && requests_queued() < config_.queue_max);
}

std::set<std::string> Router::models() const {
  std::set<std::string> models(config_.models.begin(), config_.models.end());
  for (const auto& [id, worker] : table_.all()) {
    if (!worker.entry.model.empty()) {
      models.insert(worker.entry.model);
    }
  }
  return models;
}

std::string_view Router::weight_version() const {
  for (const auto& [id, worker] : table_.all()) {
    if (!worker.entry.weight_version.empty()) {
      return worker.entry.weight_version;
    }
  }
  return "default";
}

size_t Router::requests_queued() const {
  size_t queued = 0;
  for (const auto& [model, queue] : queues_) {
    queued += queue.size();
  }
  return queued;
}

// --- arrival and choice

void Router::on(const RequestArrived& event, Turn& turn) {
  PDJOB_CHECK(!requests_.contains(event.id), event.id);
  if (const auto error = refusal_of(event.facts)) {
    turn.effects.emplace_back(
        Refuse{event.id, *error, error->status == 503 ? kRetryAfterSeconds : 0});
    return;
  }
  retries_.earn();
  Request& request = requests_[event.id];
  request.id = event.id;
  request.facts = event.facts;
  request.queue_place = {
      .below = UINT32_MAX - event.facts.priority,
      .begins = shares_.begin(event.facts.tenant, event.facts.weight,
                              event.facts.prompt_tokens + event.facts.output_tokens),
      .arrival = ++arrivals_};
  request.deadline = turn.now + std::min(config_.request_timeout, event.facts.timeout);
  request.wake = request.deadline;
  wakes_.emplace(request.wake, request.id);
  place(request, turn);
}

std::optional<openai::ApiError> Router::refusal_of(const RequestFacts& facts) const {
  if (draining_) {
    return openai::to_api_error({ErrorCode::kUnavailable, "this router is shutting down"});
  }
  if (!nobody_there_.empty()) {
    return openai::to_api_error({ErrorCode::kUnavailable, nobody_there_});
  }
  // A full router must let probes in: while a fleet is closed, nothing else makes room.
  if (requests_.size() >= config_.requests_max && !facts.probes) {
    return openai::to_api_error({ErrorCode::kOverloaded, "too many requests are alive"});
  }
  if (auto error = refusal_of_model(facts.model)) {
    return error;
  }
  if (!pins_fit(facts)) {
    return openai::to_api_error({ErrorCode::kUnavailable, "a pinned worker is not there"});
  }
  return std::nullopt;
}

std::optional<openai::ApiError> Router::refusal_of_model(const std::string& model) const {
  const std::vector<std::string>& told = config_.models;
  if (model.empty() && told.size() > 1) {
    return openai::invalid_request("There are several models: name one as `model`.", "model");
  }
  // A model of the job may have lost all its workers for now. A stand-alone router cannot call a
  // model unknown before it knows a worker.
  const bool exists = model.empty() || std::ranges::find(told, model) != told.end() ||
                      table_.knows_model(model) || (told.empty() && table_.all().empty());
  if (!exists) {
    return openai::invalid_request("The model `" + model + "` does not exist.", "model",
                                   "model_not_found", 404);
  }
  return std::nullopt;
}

void Router::place(Request& request, Turn& turn) {
  // After its last attempt a suspect waits for the word all the same: "retry later" (503) would let
  // a killer kill again.
  if (!may_try_again(request) && !awaits_word(request, turn.now)) {
    refuse(request,
           {ErrorCode::kUnavailable,
            "no worker could serve the request; the last one failed: " + request.last_failure},
           turn);
  } else if (const auto choice = choose(request, turn.now)) {
    send(request, *choice, turn);
  } else {
    enqueue(request, turn);
  }
}

void Router::place_queued(size_t failures_max, Turn& turn) {
  for (auto queue = queues_.begin(); queue != queues_.end();) {
    const std::string model = queue->first;
    size_t failures = 0;
    for (Request* request = next_queued(model, {});
         request != nullptr && failures < failures_max;) {
      const QueuePlace queue_place = request->queue_place;
      const RequestId id = request->id;
      place(*request, turn);
      request = find(id);
      if (request != nullptr && request->state == State::kQueued) {
        const bool as_others = !request->facts.pinned() && request->failed.empty();
        // A suspect that waits for a worker of its own tells nothing about the others.
        const size_t failure = is_suspect(*request, turn.now) ? 0 : 1;
        failures += request->wants_room && as_others && failure == 1 ? failures_max : failure;
      }
      request = next_queued(model, queue_place);
    }
    queue = queues_.upper_bound(model);
  }
}

// Returns the first request in this model's queue after `after`.
Router::Request* Router::next_queued(const std::string& model, const QueuePlace& after) {
  const auto queue = queues_.find(model);
  if (queue == queues_.end()) {
    return nullptr;
  }
  const auto next = queue->second.upper_bound(after);
  return next == queue->second.end() ? nullptr : &requests_.at(next->second);
}

bool Router::make_room_for(const Request& request, Turn& turn) {
  if (requests_queued() < config_.queue_max) {
    return true;
  }
  const auto own = queues_.find(request.facts.model);
  auto longest = own;  // A tie goes to its own queue: the request is one more.
  for (auto queue = queues_.begin(); queue != queues_.end(); ++queue) {
    if (longest == queues_.end() || queue->second.size() > longest->second.size()) {
      longest = queue;
    }
  }
  if (longest == queues_.end()) {
    return false;  // queue_max is 0.
  }
  const auto [last, last_id] = *longest->second.rbegin();
  if (longest == own && request.queue_place > last) {
    return false;
  }
  refuse(requests_.at(last_id), queue_full(), turn);
  return true;
}

void Router::enqueue(Request& request, Turn& turn) {
  const Instant now = turn.now;
  const auto queue = queues_.find(request.facts.model);
  const bool waits = queue != queues_.end() && queue->second.contains(request.queue_place);
  const bool returns = waits_for_admission(request) && request.attempts_made > 0;
  if (!waits && !returns && !make_room_for(request, turn)) {
    refuse(request, queue_full(), turn);
    return;
  }
  if (request.state != State::kQueued || request.queue_deadline == Instant{}) {
    request.queue_deadline = now + config_.queue_timeout;
  }
  request.state = State::kQueued;
  queues_[request.facts.model].emplace(request.queue_place, request.id);
  if (waits_for_admission(request)) {
    set_wake(request, request.deadline);
    return;
  }
  // A failed worker may be retried after its back-off; a new worker wakes the queue at once.
  Instant when = std::min(request.queue_deadline, request.deadline);
  for (const WorkerId id : request.failed) {
    if (const Worker* worker = table_.find(id)) {
      when = std::min(when, std::max(worker->retry_at, now + WorkerTable::kBackoffFirst));
    }
  }
  if (is_suspect(request, now)) {
    if (request.alone_until == Instant{}) {
      request.alone_until = now + limits::kSuspectWaitMax;
    }
    when = std::min(when, suspect_wakes(request, now));
  }
  set_wake(request, when);
}

// --- legs

void Router::send(Request& request, const Choice& choice, Turn& turn) {
  leave_queue(request);
  shares_.served(request.queue_place.begins);
  request.attempt = {.number = ++request.attempts_made,
                     .decode = {.worker = choice.decode.worker,
                                .cached_tokens = choice.decode.cached_tokens,
                                .as = choice.by_prefill() ? Stage::kPrefill : Stage::kDecode}};
  request.tries += 1;
  request.alone_until = {};
  if (is_suspect(request, turn.now)) {
    begin_trial(request.attempt.decode);  // With two hops, long before its leg.
  }
  set_wake(request, request.deadline);
  if (choice.degraded) {
    turn.effects.emplace_back(Degraded{request.id});
  }
  if (choice.bypass) {
    turn.effects.emplace_back(Bypassed{request.id, *choice.bypass});
  }
  if (!choice.prefill) {
    request.state = State::kDecoding;
    start_leg(request, Stage::kDecode,
              {.worker = request.attempt.decode.worker, .kv = KvPart::kNone}, turn);
    return;
  }
  const Worker& prefill = *table_.find(choice.prefill->worker);
  const TransferId transfer{id_bits_(), id_bits_()};
  request.attempt.prefill = {
      .worker = prefill.id, .cached_tokens = choice.prefill->cached_tokens, .as = Stage::kPrefill};
  request.attempt.transfer = transfer;
  request.attempt.learnt_address = prefill.learnt_address;
  if (!prefill.concurrent()) {
    request.state = State::kPrefilling;
    request.attempt.decode.promised = true;
    table_.promise(request.attempt.decode.worker);
    start_leg(request, Stage::kPrefill,
              {.worker = prefill.id, .kv = KvPart::kOfferUnnamed, .transfer = transfer}, turn);
    return;
  }
  request.state = State::kConcurrent;
  request.attempt.offered = true;
  start_leg(request, Stage::kPrefill,
            {.worker = prefill.id, .kv = KvPart::kOffer, .transfer = transfer}, turn);
  start_leg(request, Stage::kDecode,
            {.worker = request.attempt.decode.worker,
             .kv = KvPart::kFetch,
             .peer = prefill.id,
             .transfer = transfer},
            turn);
  if (const auto limit = slow_after(request)) {
    set_wake(request, std::min(request.deadline, turn.now + *limit));
  }
}

void Router::send_second_hop(Request& request, bool kv_params, Turn& turn) {
  if (!kv_params && config_.fallback == Fallback::kRefuse) {
    request.failed.push_back(request.attempt.prefill.worker);
    retry(request, RetryReason::kFailed, request.attempt.prefill.worker, "its reply names no KV",
          turn);
    return;
  }
  if (!kv_params) {
    turn.effects.emplace_back(Degraded{.id = request.id, .hand_over_failed = true});
  }
  set_wake(request, request.deadline);
  request.state = State::kDecoding;
  start_leg(request, Stage::kDecode,
            {.worker = request.attempt.decode.worker,
             .kv = kv_params ? KvPart::kFetchReturned : KvPart::kNone,
             .peer = kv_params ? request.attempt.prefill.worker : WorkerId{},
             .transfer = request.attempt.transfer},
            turn);
}

void Router::start_leg(Request& request, Stage stage, StartLeg effect, Turn& turn) {
  Leg& leg = leg_of(request, stage);
  PDJOB_CHECK(!leg.running && leg.worker == effect.worker, request.id);
  leg.running = true;
  leg.fetches = effect.kv == KvPart::kFetch || effect.kv == KvPart::kFetchReturned;
  keep_promise(leg);
  leg.begun = stage == Stage::kPrefill ? turn.now : Instant{};
  leg.tokens = request.facts.tokens(stage) - leg.cached_tokens;
  if (!leg.on_trial && is_suspect(request, turn.now)) {
    begin_trial(leg);
  }
  table_.begin(leg.worker, leg.tokens, turn.now);
  if (stage == Stage::kDecode && effect.kv == KvPart::kNone) {
    leg.prompt =
        request.facts.prompt_tokens - std::min(request.facts.prompt_tokens, leg.cached_tokens);
    table_.begin_prompt(leg.worker, leg.prompt);
  }
  if (config_.measured_load) {
    leg.work =
        stage == Stage::kPrefill ? table_.find(leg.worker)->load() : request.facts.output_tokens;
  }
  policy_of(leg.as).note_sent(request.facts.prompt(), leg.worker);
  effect.leg = {request.id, request.attempt.number, stage};
  effect.resumes = stage == Stage::kDecode && request.begun;
  turn.effects.emplace_back(effect);
  if (policies_.kv && policies_.kv->asks(request.facts.blocks, leg.worker)) {
    turn.effects.emplace_back(LearnTokens{request.id, leg.worker, request.facts.blocks});
  }
}

void Router::end_leg(Request& request, Stage stage) {
  Leg& leg = leg_of(request, stage);
  PDJOB_CHECK(leg.running, request.id);
  leg.running = false;
  end_trial(leg);
  end_prompt(leg);
  table_.end(leg.worker, leg.tokens);
  policy_of(leg.as).note_ended(request.facts.prompt(), leg.worker);
  room_made_ = true;
}

// It is computed, or given up.
void Router::end_prompt(Leg& leg) { table_.end_prompt(leg.worker, std::exchange(leg.prompt, 0)); }

void Router::keep_promise(Leg& leg) {
  if (std::exchange(leg.promised, false)) {
    table_.keep_promise(leg.worker);
    room_made_ = true;
  }
}

void Router::cancel_leg(Request& request, Stage stage, Turn& turn) {
  if (leg_of(request, stage).running) {
    end_leg(request, stage);
    turn.effects.emplace_back(CancelLeg{{request.id, request.attempt.number, stage}});
  }
  keep_promise(leg_of(request, stage));
  end_trial(leg_of(request, stage));
}

void Router::cancel_legs(Request& request, Turn& turn) {
  request.hand_over_failed = false;
  drop_rival(request, turn);
  drop_prefill(request, turn);
  cancel_leg(request, Stage::kDecode, turn);
}

// This attempt's KV will not be fetched. The worker is told even if its leg is cancelled: its reply
// may be under way already, and its rows would then stay until their lease expires.
void Router::drop_prefill(Request& request, Turn& turn) {
  cancel_leg(request, Stage::kPrefill, turn);
  const bool offered = std::exchange(request.attempt.offered, false);
  if (offered && table_.find(request.attempt.prefill.worker) != nullptr) {
    turn.effects.emplace_back(
        ReleaseOffer{request.attempt.prefill.worker, request.attempt.transfer});
  }
}

// --- a second attempt beside a slow one

PrefillPace& Router::pace_of(WorkerId prefill) {
  const Worker* worker = table_.find(prefill);
  return prefill_paces_
      .try_emplace(worker == nullptr ? "" : worker->entry.model, config_.hedge_quantile)
      .first->second;
}

std::optional<Duration> Router::slow_after(const Request& request) {
  const bool may_hedge = config_.hedge_quantile > 0 && !request.rival && !request.facts.pinned();
  const Leg& prefill = request.attempt.prefill;
  return may_hedge ? pace_of(prefill.worker).limit(prefill.tokens) : std::nullopt;
}

void Router::hedge(Request& request, Turn& turn) {
  set_wake(request, request.deadline);
  if (!request.attempt.prefill.running || !may_try_again(request) || !retries_.left() ||
      is_suspect(request, turn.now)) {
    return;
  }
  const WorkerId slow = request.attempt.prefill.worker;
  request.failed.push_back(slow);
  const auto choice = choose(request, turn.now);
  request.failed.pop_back();
  if (!choice || !choice->prefill || !table_.find(choice->prefill->worker)->concurrent()) {
    return;
  }
  retries_.spend();
  pace_of(slow).note_slow();
  request.attempt.prefill.begun = {};
  turn.effects.emplace_back(Hedged{request.id, slow});
  request.rival = request.attempt;
  send(request, *choice, turn);
}

void Router::drop_rival(Request& request, Turn& turn) {
  if (request.rival) {
    std::swap(request.attempt, *request.rival);
    drop_prefill(request, turn);
    cancel_leg(request, Stage::kDecode, turn);
    request.attempt = *std::exchange(request.rival, std::nullopt);
  }
}

bool Router::leave_to_rival(Request& request, Turn& turn) {
  if (!request.rival) {
    return false;
  }
  std::swap(request.attempt, *request.rival);
  drop_rival(request, turn);
  return true;
}

// --- events of legs: router_answers.cc has LegAnswered

void Router::note_pace(const Leg& leg, Stage stage, Instant now) {
  if (leg.begun == Instant{}) {
    return;
  }
  if (config_.measured_load) {
    table_.note_pace(leg.worker, leg.work, now - leg.begun);
  }
  if (config_.hedge_quantile > 0 && stage == Stage::kPrefill) {
    pace_of(leg.worker).note(leg.tokens, now - leg.begun);
  }
}

void Router::on(const LegEnded& event, Turn& turn) {
  Request* request = find_running(event.leg);
  if (request == nullptr) {
    return;
  }
  const Stage stage = event.leg.stage;
  note_pace(leg_of(*request, stage), stage, turn.now);
  table_.note_whole(leg_of(*request, stage).worker);
  end_leg(*request, stage);
  if (request->state == State::kAnswered) {
    erase(*request);
  } else if (request->state == State::kRelaying) {
    if (stage == request->relayed) {
      complete(*request, turn);
    }
  } else {
    PDJOB_CHECK(stage == Stage::kPrefill, "a decode leg answers before it ends", request->id);
    on_prefilled(*request, event, turn);
  }
}

void Router::on_prefilled(Request& request, const LegEnded& event, Turn& turn) {
  Attempt& attempt = request.attempt;
  if (!event.kv_address.empty()) {
    table_.note_address(attempt.prefill.worker, event.kv_address);
  }
  if (request.state == State::kPrefilling) {
    send_second_hop(request, event.kv_params, turn);
    return;
  }
  // The decode worker may wait for another engine, perhaps forever.
  const bool misled = !attempt.learnt_address.empty() && attempt.learnt_address != event.kv_address;
  if (misled && !leave_to_rival(request, turn)) {
    cancel_leg(request, Stage::kDecode, turn);
    attempt.offered = false;
    attempt.number = ++request.attempts_made;
    send_second_hop(request, event.kv_params, turn);
  }
}

void Router::on(const LegFailed& event, Turn& turn) {
  Request* request = find_running(event.leg);
  if (request == nullptr) {
    return;
  }
  const Stage stage = event.leg.stage;
  const WorkerId worker = leg_of(*request, stage).worker;
  if (event.reached && event.error.code == ErrorCode::kUnavailable &&
      request->state != State::kAnswered) {
    note_loss(*request, leg_of(*request, stage), turn.now);
    settle_losses(*request, turn.now);
  }
  end_leg(*request, stage);
  table_.note_failed(worker, turn.now);
  if (stage == Stage::kPrefill) {
    // A worker withdraws its offer when its client's connection breaks.
    request->attempt.offered = false;
  }
  if (request->state == State::kAnswered) {
    erase(*request);
  } else if (is_guilty(*request)) {
    convict_killer(*request, turn);
  } else if (request->state == State::kRelaying) {
    if (stage == request->relayed) {
      const bool goes_on =
          event.resumable && !request->facts.pinned() && request->continued < config_.continuations;
      if (goes_on) {
        continue_elsewhere(*request, worker, turn);
      } else {
        abort(*request, turn);
      }
    }
  } else {
    request->failed.push_back(worker);
    if (leave_to_rival(*request, turn)) {
      return;
    }
    // A dead worker looks free. While others live and are busy, it does not use up the attempts.
    if (!event.reached && request->wants_room && !request->facts.pinned()) {
      request->tries -= 1;
    }
    retry(*request, RetryReason::kUnreachable, worker, event.error.message, turn);
  }
}

void Router::continue_elsewhere(Request& request, WorkerId worker, Turn& turn) {
  request.continued += 1;
  request.failed = {worker};
  request.prefill_overloaded = false;
  request.last_failure.clear();
  drop_prefill(request, turn);
  turn.effects.emplace_back(Continued{request.id, worker});
  place(request, turn);
}

// Tries another pair, now or when there is one. After the last attempt, the request is refused.
// Requires: no reply of this attempt can be relayed.
void Router::retry(Request& request, RetryReason reason, WorkerId worker, const std::string& why,
                   Turn& turn) {
  cancel_legs(request, turn);
  request.last_failure = why;
  if (may_try_again(request)) {
    turn.effects.emplace_back(Retried{request.id, reason, worker});
  }
  place(request, turn);
}

// --- prefix cache events of engines

void Router::on(const KvTold& event, Turn& /*turn*/) {
  if (policies_.kv && policies_.kv->listens_to(event.worker)) {
    policies_.kv->take(event.worker, event.events);
  }
}

void Router::on(const KvToldAnew& event, Turn& /*turn*/) {
  if (policies_.kv && table_.find(event.worker) != nullptr) {
    policies_.kv->begin(event.worker, event.complete);
  }
}

void Router::on(const TokensLearnt& event, Turn& /*turn*/) {
  if (policies_.kv) {
    policies_.kv->learn({.model = event.model, .tenant = event.tenant}, event.blocks,
                        event.prompt_bytes, event.tokens);
  }
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
  if (config_.hears_losses) {
    // The table drops the engine ids of workers that are gone.
    for (const auto& [id, worker] : table_.all()) {
      lost_.try_emplace(id, LostWorker{.engine_id = worker.entry.engine_id});
    }
  }
  if (!event.workers.empty()) {
    nobody_there_.clear();
  }
  const std::vector<WorkerId> gone = table_.replace(event.workers);
  if (usable() && table_.any(Stage::kDecode, "")) {  // Not by workers that leave.
    wakes_until_ = {};
  } else if (asleep_ && !event.asleep) {
    wakes_until_ = turn.now + config_.queue_timeout;
  }
  asleep_ = event.asleep;
  suspicions_.forget(gone);
  std::erase_if(prefill_paces_,
                [this](const auto& pace) { return !table_.knows_model(pace.first); });
  if (policies_.kv) {
    std::ranges::for_each(gone, [this](WorkerId worker) { policies_.kv->forget(worker); });
  }
  const auto is_gone = [&gone](WorkerId id) {
    return std::find(gone.begin(), gone.end(), id) != gone.end();
  };
  if (config_.hears_losses) {
    std::erase_if(lost_, [this](const auto& lost) {
      return table_.find(lost.first) != nullptr && !lost.second.had_suspect;
    });
    while (lost_.size() > limits::kLostWorkersMax) {
      lost_.erase(lost_.begin());
    }
    take_departures(event, gone, turn);
  }
  // A prefill worker may leave after its part. A reply being relayed ends only with its connection.
  const auto is_lost = [&](const Request& request, const Attempt& attempt) {
    const bool waiting = request.state == State::kConcurrent ||
                         request.state == State::kPrefilling || request.state == State::kDecoding;
    const bool needs_prefill = attempt.prefill.running || request.state == State::kConcurrent;
    return waiting &&
           (is_gone(attempt.decode.worker) || (needs_prefill && is_gone(attempt.prefill.worker)));
  };
  std::vector<RequestId> bereft;
  for (auto& [id, request] : requests_) {
    if (request.rival && is_lost(request, *request.rival)) {
      drop_rival(request, turn);
    }
    if (is_lost(request, request.attempt) && !leave_to_rival(request, turn)) {
      bereft.push_back(id);
    }
  }
  for (const RequestId id : bereft) {
    Request& request = requests_.at(id);
    const Attempt& lost = request.attempt;
    const WorkerId worker = is_gone(lost.decode.worker) ? lost.decode.worker : lost.prefill.worker;
    retry(request, RetryReason::kWorkerLeft, worker, "it left", turn);
  }
  place_queued(SIZE_MAX, turn);
}

void Router::on(const LoadChanged& event, Turn& /*turn*/) {
  const Worker* worker = table_.find(event.name);
  const bool stood_still = worker != nullptr && worker->stands_still();
  table_.set_load(event.name, event.engine_id, event.load);
  room_made_ = room_made_ || (stood_still && !worker->stands_still());  // For a suspect.
}

void Router::on(const NobodyThere& event, Turn& turn) {
  nobody_there_ = event.why;
  std::vector<RequestId> waiting;
  for (const auto& [id, request] : requests_) {
    if (request.state == State::kQueued) {
      waiting.push_back(id);
    }
  }
  for (const RequestId id : waiting) {
    refuse(requests_.at(id), {ErrorCode::kUnavailable, event.why}, turn);
  }
}

void Router::on(const WorkerProbed& event, Turn& turn) {
  const Worker* worker = table_.find(event.name);
  if (worker == nullptr) {
    return;
  }
  if (!event.reachable) {
    table_.note_failed(worker->id, turn.now);
    table_.set_silent(worker->id, event.silent);
    return;
  }
  if (table_.note_reachable(worker->id)) {
    for (auto& [id, request] : requests_) {
      std::erase(request.failed, worker->id);
    }
    place_queued(SIZE_MAX, turn);
  }
}

void Router::on(const DrainRequested& /*event*/, Turn& turn) {
  draining_ = true;
  if (!closed_) {
    return;
  }
  std::vector<RequestId> waiting;  // For an end of the pause that this router will not see.
  for (const auto& [id, request] : requests_) {
    if (request.state == State::kQueued && waits_for_admission(request)) {
      waiting.push_back(id);
    }
  }
  for (const RequestId id : waiting) {
    refuse(requests_.at(id), {ErrorCode::kUnavailable, "this router is shutting down"}, turn);
  }
}

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
  } else if (request.state == State::kRelaying && !overdue) {
    end_trial(request.attempt.prefill);
    end_trial(request.attempt.decode);
    set_wake(request, request.deadline);
  } else if (request.state == State::kRelaying) {
    abort(request, turn);
  } else if (overdue) {
    const bool own = request.facts.timeout < config_.request_timeout;
    refuse(request,
           {ErrorCode::kTimeout, own ? "the request took longer than its own timeout"
                                     : "the request took longer than request_timeout"},
           turn);
  } else if (request.hand_over_failed) {
    retries_.spend();
    retry(request, RetryReason::kFailed, request.attempt.decode.worker, request.last_failure, turn);
  } else if (request.state == State::kConcurrent) {
    hedge(request, turn);
  } else if (waits_for_admission(request)) {
    set_wake(request, request.deadline);
  } else if (turn.now >= request.queue_deadline) {
    const std::string& why = request.last_failure;
    if (request.wants_room) {
      refuse(request, {ErrorCode::kOverloaded, "all workers were busy for queue_timeout"}, turn);
      return;
    }
    refuse(request,
           {ErrorCode::kUnavailable,
            "no usable pair of workers" + (why.empty() ? "" : "; the last one failed: " + why)},
           turn);
  } else {
    request.failed.clear();
    place(request, turn);
  }
}

// --- ends of requests

void Router::refuse(Request& request, const Error& error, Turn& turn) {
  if (request.begun) {
    abort(request, turn);
    return;
  }
  cancel_legs(request, turn);
  const openai::ApiError api_error = openai::to_api_error(error);
  turn.effects.emplace_back(
      Refuse{request.id, api_error, api_error.status == 503 ? kRetryAfterSeconds : 0});
  erase(request);
}

void Router::complete(Request& request, Turn& turn) {
  turn.effects.emplace_back(Complete{request.id});
  if (closed_ && pause_mode_ != net::PauseMode::kWait && !request.facts.probes) {
    request.attempt.offered = request.attempt.prefill.worker != WorkerId{};
    cancel_legs(request, turn);  // Its prefill worker is not waited for.
  }
  if (!request.attempt.prefill.running && !request.attempt.decode.running) {
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
  PDJOB_CHECK(!request.attempt.prefill.running && !request.attempt.decode.running && !request.rival,
              request.id);
  PDJOB_CHECK(!request.attempt.prefill.on_trial && !request.attempt.decode.on_trial &&
                  !request.attempt.decode.promised,
              request.id);
  leave_queue(request);
  wakes_.erase({request.wake, request.id});
  requests_.erase(request.id);
}

void Router::leave_queue(const Request& request) {
  const auto queue = queues_.find(request.facts.model);
  if (queue != queues_.end() && queue->second.erase(request.queue_place) > 0 &&
      queue->second.empty()) {
    queues_.erase(queue);
  }
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

// Returns the request of a leg that still counts, and makes the leg's attempt its current one. Null
// if the leg was cancelled or belongs to an earlier attempt.
Router::Request* Router::find_running(const LegId& leg) {
  Request* request = find(leg.request);
  if (request == nullptr) {
    return nullptr;
  }
  if (request->rival && request->rival->number == leg.attempt) {
    std::swap(request->attempt, *request->rival);
  }
  const bool counts = request->attempt.number == leg.attempt && leg_of(*request, leg.stage).running;
  return counts ? request : nullptr;
}

}  // namespace pdjob::router
