#include "router/core/router.h"

#include <algorithm>
#include <utility>

#include "common/check.h"

namespace pdjob::router {
namespace {

constexpr uint32_t kRetryAfterSeconds = 1;
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
    const bool alone = config_.fallback == Fallback::kDecodeAlone && !worker.needs_prefill();
    if (worker.serves(Stage::kDecode) &&
        (alone || (!worker.lonely && table_.any(Stage::kPrefill, worker.entry.model)))) {
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
  request.queue_place = queue_.place_of(event.facts);
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
  if (auto error = refusal_of_route(facts)) {
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

// Workers that have the route may be away for now.
std::optional<openai::ApiError> Router::refusal_of_route(const RequestFacts& facts) const {
  if (facts.route.empty() || table_.knows_route(facts.route, facts.model)) {
    return std::nullopt;
  }
  return openai::invalid_request("No worker of this model serves POST " + facts.route + ".", "",
                                 "not_found", 404);
}

void Router::place(Request& request, Turn& turn) {
  // After its last attempt a suspect waits for the word all the same: "retry later" (503) would let
  // a killer kill again.
  if (!may_try_again(request) && !request.losses.awaits_word(turn.now)) {
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
  for (const std::string& model : queue_.models()) {
    size_t failures = 0;
    for (auto id = queue_.next(model, {}); id && failures < failures_max;) {
      const RequestQueue::Rank queue_place = requests_.at(*id).queue_place;
      place(requests_.at(*id), turn);
      const Request* const request = find(*id);
      if (request != nullptr && request->state == State::kQueued) {
        const bool as_others =
            !request->facts.pinned() && request->failed.empty() && !request->begun;
        // A suspect that waits for a worker of its own tells nothing about the others.
        const size_t failure = request->losses.is_suspect(turn.now) ? 0 : 1;
        failures += request->wants_room && as_others && failure == 1 ? failures_max : failure;
      }
      id = queue_.next(model, queue_place);
    }
  }
}

void Router::enqueue(Request& request, Turn& turn) {
  const Instant now = turn.now;
  const std::string& model = request.facts.model;
  const bool waits = queue_.contains(model, request.queue_place);
  const bool returns = waits_for_admission(request) && request.attempts_made > 0;
  if (!waits && !returns && queue_.size() >= config_.queue_max) {
    const auto displaced = queue_.displaced_by(model, request.queue_place);
    refuse(displaced ? requests_.at(*displaced) : request,
           {ErrorCode::kOverloaded, "too many requests wait (queue_max)"}, turn);
    if (!displaced) {
      return;
    }
  }
  if (request.state != State::kQueued || request.queue_deadline == Instant{}) {
    request.queue_deadline = now + config_.queue_timeout;
  }
  request.state = State::kQueued;
  queue_.add(model, request.queue_place, request.id);
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
  if (request.losses.is_suspect(now)) {
    request.losses.begin_wait(now);
    when = std::min(when, request.losses.wakes(now));
  }
  set_wake(request, when);
}

// --- prefix cache events of engines

void Router::on(const KvTold& event, Turn& /*turn*/) {
  if (policies_.kv && policies_.kv->listens_to(event.worker)) {
    policies_.kv->take(event.worker, event.events, event.rank);
  }
}

void Router::on(const PairAccused& event, Turn& turn) {
  suspect(event.prefill, event.decode, PairFault::kDamaged, turn);
}

void Router::on(const KvToldAnew& event, Turn& /*turn*/) {
  if (policies_.kv && table_.find(event.worker) != nullptr) {
    policies_.kv->begin(event.worker, event.complete, event.rank);
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
    blame_.expect(table_);
  }
  if (!event.workers.empty()) {
    nobody_there_.clear();
  }
  stores_.replace(event.stores);
  const std::vector<WorkerId> gone = table_.replace(event.workers, stores_);
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
      keep_only(request, request.attempt, turn);
    }
    if (is_lost(request, request.attempt) && !leave_to_rival(request, request.attempt, turn)) {
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

// Requests that wait keep the deadline that they have.
void Router::on(const ConfigChanged& event, Turn& turn) {
  if (event.config.hedge_quantile != config_.hedge_quantile) {
    prefill_paces_.clear();
  }
  take_live_keys(event.config, config_);
  retries_.set_rate(config_.retry_budget);
  place_queued(SIZE_MAX, turn);
}

void Router::on(const AdapterChanged& event, Turn& turn) {
  table_.note_adapter(event.worker, event.name, event.loaded);
  place_queued(SIZE_MAX, turn);
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
  queue_.remove(request.facts.model, request.queue_place);
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

Router::Running Router::find_running(const LegId& leg) {
  Request* const request = find(leg.request);
  if (request == nullptr) {
    return {};
  }
  const bool of_rival = request->rival && request->rival->number == leg.attempt;
  Attempt& attempt = of_rival ? *request->rival : request->attempt;
  const bool counts = attempt.number == leg.attempt && attempt.leg(leg.stage).running;
  return counts ? Running{request, &attempt} : Running{};
}

}  // namespace pdjob::router
