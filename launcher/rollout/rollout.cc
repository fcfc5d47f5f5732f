#include "launcher/rollout/rollout.h"

#include <algorithm>

#include "common/check.h"
#include "common/limits.h"

namespace pdjob::launcher {

namespace {

using net::OrderKind;

constexpr Duration kAskAgain = std::chrono::milliseconds(500);
// A flush does not wait for requests.
constexpr Duration kFlushPatience = std::chrono::seconds(2);
constexpr size_t kWhyBytesMax = 256;        // Of a worker that does not serve.
constexpr size_t kOrdersWaitingMax = 256;   // Over all routers; beyond: 503.
constexpr size_t kOrdersAnsweredMax = 256;  // Kept, in case a router asks again.

// Repetitions of one order, whoever asks.
bool same_order(const net::OrderAsked& one, const net::OrderAsked& other) {
  return one.kind == other.kind && one.path == other.path && one.version == other.version &&
         (one.kind != OrderKind::kPause || one.mode == other.mode);
}

std::string in_seconds(Duration duration) {
  return std::to_string(std::chrono::duration_cast<std::chrono::seconds>(duration).count()) + " s";
}

}  // namespace

Rollout::Rollout(const RolloutTiming& timing, net::WeightSource weights,
                 const RolloutRecord& record, uint64_t launcher)
    : timing_(timing),
      published_(std::move(weights)),
      chosen_(published_),
      asked_path_(record.asked_path),
      updates_(record.updates),
      unpublished_(record.applying),
      paused_(record.paused),
      mode_(record.mode),
      closed_(record.paused || record.applying),
      epoch_((launcher << 32U) + 1),
      orders_(launcher << 32U),
      versions_(record.versions) {
  if (unpublished_) {  // Nobody is left to be answered.
    order_ = applied_order_ = {.kind = OrderKind::kUpdate,
                               .path = asked_path_,
                               .version = chosen_.version,
                               .keeps_pause = record.keeps_pause};
    next_ = chosen_;
    phase_ = Phase::kApplying;
  }
}

RolloutRecord Rollout::record() const {
  return {.paused = paused_,
          .mode = mode_,
          .updates = updates_,
          .asked_path = asked_path_,
          .applying = unpublished_,
          .keeps_pause = unpublished_ && applied_order_.keeps_pause,
          .versions = versions_};
}

void Rollout::step(const RolloutEvent& event, Instant now, std::vector<RolloutEffect>& effects) {
  Turn turn{now, effects};
  std::visit([&](const auto& body) { on(body, turn); }, event);
  proceed(turn);
}

Instant Rollout::next_wakeup() const {
  Instant due = deadline_;
  if (phase_ == Phase::kPreparing) {
    due = std::min(due, workers_asked_ + kAskAgain);
  }
  if (phase_ == Phase::kClosing ||
      std::ranges::any_of(routers_, [](const auto& each) { return !each.second.applied; })) {
    due = std::min(due, routers_asked_ + kAskAgain);
  }
  return std::min(due, grace_due_);
}

const char* Rollout::phase() const {
  switch (phase_) {
    case Phase::kIdle:
      return "idle";
    case Phase::kPreparing:
      return "preparing";
    case Phase::kClosing:
      return "closing";
    case Phase::kApplying:
      return "applying";
  }
  PDJOB_CHECK(false, static_cast<int>(phase_));
}

// --- orders

void Rollout::on(const OrderReceived& event, Turn& turn) {
  if (event.order.kind == OrderKind::kReport) {
    net::OrderAnswered now = report();
    now.id = event.from.id;
    turn.effects.emplace_back(AnswerOrder{event.from, std::move(now)});
    return;
  }
  const auto answered =
      std::ranges::find(answered_, event.from, &std::pair<Ticket, net::OrderAnswered>::first);
  if (answered != answered_.end()) {
    turn.effects.emplace_back(AnswerOrder{event.from, answered->second});
    return;
  }
  if (std::ranges::find(waiting_, event.from) != waiting_.end()) {
    return;
  }
  if (event.order.kind == OrderKind::kCancel) {
    return cancel(event, turn);
  }
  const bool heals = phase_ == Phase::kApplying && waiting_.empty();
  if (phase_ != Phase::kIdle && same_order(event.order, order_)) {
    if (waiting_.size() >= kOrdersWaitingMax) {
      answer(event.from, kUnavailable, "too many wait for this order", turn);
      return;
    }
    if (heals) {
      deadline_ = turn.now + timing_.apply_timeout;
    }
    order_.keeps_pause = order_.keeps_pause || event.order.keeps_pause;
    if (phase_ == Phase::kApplying) {
      applied_order_ = order_;
    }
    waiting_.push_back(event.from);
    return;
  }
  if (amend_pause(event, turn)) {
    return;
  }
  if (phase_ != Phase::kIdle && !heals) {
    answer(event.from, kBusy,
           std::string("another order runs: ") + to_string(order_.kind) + ", " + phase(), turn);
    return;
  }
  uint16_t status = kRefused;
  if (const auto why = refusal_of(event.order, status)) {
    answer(event.from, status, *why, turn);
    return;
  }
  if (heals && event.order.kind != OrderKind::kUpdate) {
    if (event.order.kind == OrderKind::kPause || event.order.kind == OrderKind::kResume) {
      paused_ = event.order.kind == OrderKind::kPause;
      answer(event.from, kDone, "the fleet is closed until it can serve the newest weights", turn);
    } else {
      answer(event.from, kBusy, "the fleet does not serve yet", turn);
    }
    return;
  }
  begin(event, turn);
}

void Rollout::cancel(const OrderReceived& event, Turn& turn) {
  if (phase_ == Phase::kIdle) {
    answer(event.from, kDone, "no order runs", turn);
    return;
  }
  if (phase_ == Phase::kApplying) {
    answer(event.from, kBusy,
           "workers take the new weights already: order other weights to replace them", turn);
    return;
  }
  give_up(kBusy, "the order was cancelled", turn);
  answer(event.from, kDone, "cancelled", turn);
}

bool Rollout::amend_pause(const OrderReceived& event, Turn& turn) {
  if (phase_ != Phase::kClosing || order_.kind != OrderKind::kPause) {
    return false;
  }
  if (event.order.kind == OrderKind::kResume) {
    paused_ = false;
    give_up(kBusy, "the pause was ended by another order", turn);
    answer(event.from, kDone, "resumed", turn);
    return true;
  }
  if (event.order.kind != OrderKind::kPause || waiting_.size() >= kOrdersWaitingMax) {
    return false;
  }
  order_.mode = mode_ = event.order.mode;
  set_admission(true, turn);
  waiting_.push_back(event.from);
  return true;
}

std::optional<std::string> Rollout::refusal_of(const net::OrderAsked& order,
                                               uint16_t& status) const {
  if (!fleet_.ready) {
    status = kUnavailable;
    return "the job is not ready";
  }
  if (order.version.size() > limits::kWeightVersionBytesMax) {
    return "a version has at most " + std::to_string(limits::kWeightVersionBytesMax) + " bytes";
  }
  if (order.kind == OrderKind::kRename && order.version.empty()) {
    return "the new version is missing";
  }
  if (order.kind == OrderKind::kRename && names_others(order.version, digest_in_use())) {
    return "version " + order.version + " names other weights already";
  }
  if (order.kind != OrderKind::kUpdate) {
    return std::nullopt;
  }
  if (order.path.empty()) {
    return "the path of the weights is missing";
  }
  if (std::ranges::none_of(fleet_.workers, &WorkerSeen::serves)) {
    status = kUnavailable;
    return "no worker serves, so none can read new weights";
  }
  if (!unpublished_ && order.version == published_.version && order.path != published_.path &&
      order.path != asked_path_) {
    return "version " + order.version + " names other weights already, those of " +
           (published_.path.empty() ? "the job file" : published_.path);
  }
  return std::nullopt;
}

bool Rollout::changes_nothing(const net::OrderAsked& order) const {
  switch (order.kind) {
    case OrderKind::kResume:
      return !closed_;
    case OrderKind::kPause:
      return paused_ && mode_ == order.mode && quiet();
    case OrderKind::kUpdate:
    case OrderKind::kRename:
      return !unpublished_ && !order.version.empty() && order.version == published_.version;
    case OrderKind::kFlush:
    case OrderKind::kReport:
    case OrderKind::kCancel:
      return false;
  }
  return false;
}

void Rollout::begin(const OrderReceived& event, Turn& turn) {
  net::OrderAsked order = event.order;
  if (order.keeps_pause && !paused_ && changes_nothing(order)) {
    order.kind = OrderKind::kPause;
  }
  if (changes_nothing(order)) {
    paused_ = paused_ || (order.kind == OrderKind::kPause);
    answer(event.from, kDone, "nothing to do", turn);
    return;
  }
  note(std::string(to_string(order.kind)) + (order.path.empty() ? "" : " " + order.path) +
           (order.version.empty() ? "" : " as " + order.version),
       turn);
  order_ = order;
  waiting_ = {event.from};
  next_ = published_;
  parts_ = {};
  switch (order.kind) {
    case OrderKind::kResume:
      paused_ = false;
      set_admission(false, turn);
      answer_waiting(kDone, "resumed", turn);
      return;
    case OrderKind::kUpdate:
      prepared_.clear();
      asked_.clear();
      ++orders_;
      enter(Phase::kPreparing, timing_.prepare_timeout, turn);
      ask_workers(turn);
      return;
    case OrderKind::kRename:
      next_.version = order.version;
      [[fallthrough]];
    case OrderKind::kFlush:
      next_.digest = digest_in_use();
      [[fallthrough]];
    case OrderKind::kPause:
      enter(Phase::kClosing,
            order.kind == OrderKind::kFlush ? kFlushPatience : timing_.quiesce_timeout, turn);
      if (!closed_ || (order.kind == OrderKind::kPause && order.mode != mode_)) {
        mode_ = order.mode;
        set_admission(true, turn);
      }
      return;
    case OrderKind::kReport:
    case OrderKind::kCancel:
      break;
  }
  PDJOB_CHECK(false, static_cast<int>(order.kind));
}

void Rollout::enter(Phase phase, Duration limit, Turn& turn) {
  phase_ = phase;
  phase_began_ = turn.now;
  deadline_ = limit == Duration::max() ? kNever : turn.now + limit;
}

// --- the fleet

void Rollout::on(const FleetSeen& event, Turn& turn) {
  fleet_ = event;
  std::map<std::string, Router> routers;
  bool is_new = false;
  for (const RouterSeen& seen : event.routers) {
    const auto known = routers_.find(seen.name);
    if (known != routers_.end() && known->second.engine_id == seen.engine_id) {
      routers.insert(*known);
    } else {
      routers.emplace(seen.name, Router{.engine_id = seen.engine_id});
      is_new = true;
    }
  }
  routers_ = std::move(routers);
  if (is_new) {
    ask_routers(turn);
  }
  if (phase_ != Phase::kPreparing) {
    return;
  }
  std::erase_if(prepared_, [&](const auto& each) {
    return std::ranges::find(event.workers, each.first, &WorkerSeen::engine_id) ==
           event.workers.end();
  });
}

void Rollout::ask_workers(Turn& turn) {
  workers_asked_ = turn.now;
  for (const WorkerSeen& worker : fleet_.workers) {
    if (worker.serves() && !prepared_.contains(worker.engine_id) && !fell(worker)) {
      asked_.emplace(worker.name, worker.engine_id);
      turn.effects.emplace_back(
          TellProcess{worker.name, net::PrepareWeights{.order = orders_, .path = order_.path}});
    }
  }
}

void Rollout::on(const WorkerPrepared& event, Turn& turn) {
  const auto worker = std::ranges::find(fleet_.workers, event.worker, &WorkerSeen::name);
  if (phase_ != Phase::kPreparing || event.answer.order != orders_ ||
      worker == fleet_.workers.end() || worker->engine_id != event.answer.engine_id) {
    return;
  }
  if (!event.answer.error.empty()) {
    give_up(event.answer.refused ? kRefused : kFailed, event.worker + ": " + event.answer.error,
            turn);
    return;
  }
  prepared_[event.answer.engine_id] = event.answer;
}

void Rollout::set_admission(bool closed, Turn& turn) {
  ++epoch_;
  closed_ = closed;
  for (auto& [name, router] : routers_) {
    router.applied = false;
  }
  ask_routers(turn);
}

void Rollout::ask_routers(Turn& turn) {
  routers_asked_ = turn.now;
  for (const auto& [name, router] : routers_) {
    if (!router.applied || (phase_ == Phase::kClosing && router.running > 0)) {
      turn.effects.emplace_back(TellProcess{
          name, net::AdmissionAsked{.epoch = epoch_, .closed = closed_, .mode = mode_}});
    }
  }
}

void Rollout::on(const RouterAnswered& event, Turn& /*turn*/) {
  const auto router = routers_.find(event.router);
  if (router != routers_.end() && router->second.engine_id == event.answer.engine_id &&
      event.answer.epoch == epoch_) {
    router->second.applied = true;
    router->second.running = event.answer.running;
  }
}

bool Rollout::fell(const WorkerSeen& worker) const {
  const auto asked = asked_.find(worker.name);
  return asked != asked_.end() && asked->second != worker.engine_id;
}

bool Rollout::routers_applied() const {
  return std::ranges::all_of(routers_, [](const auto& each) { return each.second.applied; });
}

bool Rollout::quiet() const {
  return routers_applied() &&
         std::ranges::all_of(routers_, [](const auto& each) { return each.second.running == 0; });
}

// --- time

void Rollout::on(const TimePassed& /*event*/, Turn& turn) {
  if (turn.now >= grace_due_) {
    grace_due_ = kNever;
  }
  if (turn.now >= deadline_) {
    overdue(turn);
    return;
  }
  if (phase_ == Phase::kPreparing && turn.now >= workers_asked_ + kAskAgain) {
    ask_workers(turn);
  }
  if (turn.now >= routers_asked_ + kAskAgain) {
    ask_routers(turn);
  }
}

void Rollout::overdue(Turn& turn) {
  deadline_ = kNever;
  std::string late;
  const auto add = [&late](const std::string& name) { late += (late.empty() ? "" : ", ") + name; };
  if (phase_ == Phase::kPreparing) {
    for (const WorkerSeen& worker : fleet_.workers) {
      if (worker.serves() && !prepared_.contains(worker.engine_id)) {
        add(worker.name);
      }
    }
    give_up(kFailed,
            "the weights were not read within " + in_seconds(timing_.prepare_timeout) + " by " +
                (late.empty() ? "any worker" : late),
            turn);
  } else if (phase_ == Phase::kClosing) {
    for (const auto& [name, router] : routers_) {
      if (!router.applied || router.running > 0) {
        add(name + " with " + std::to_string(router.running) + " requests");
      }
    }
    give_up(order_.kind == OrderKind::kFlush ? kRefused : kTooSlow, "requests still run: " + late,
            turn);
  } else if (phase_ == Phase::kApplying && can_serve()) {
    publish(turn);
  } else if (phase_ == Phase::kApplying) {
    answer_waiting(
        kFailed, "the fleet cannot serve the new weights yet; it stays closed until it can", turn);
  }
}

// --- answers

net::OrderAnswered Rollout::report() const {
  net::OrderAnswered now{.message = phase(),
                         .weights = published_,
                         .paused = paused_,
                         .mode = mode_,
                         .workers = static_cast<uint32_t>(fleet_.workers.size()),
                         .updates = updates_,
                         .troubles = troubles(published_)};
  now.weights.digest = digest_in_use();
  now.serving =
      static_cast<uint32_t>(std::ranges::count_if(fleet_.workers, [this](const WorkerSeen& worker) {
        return worker.state == ProcessState::kReady && worker.version == published_.version;
      }));
  return now;
}

std::vector<net::WorkerTrouble> Rollout::troubles(const net::WeightSource& weights) const {
  std::vector<net::WorkerTrouble> found;
  for (const WorkerSeen& worker : fleet_.workers) {
    const bool well = worker.state == ProcessState::kReady && worker.version == weights.version;
    if (!well && found.size() < net::kTroublesMax) {
      std::string why = to_string(worker.state);
      why += worker.last_exit.empty() ? "" : ": " + worker.last_exit;
      why.resize(std::min<size_t>(why.size(), kWhyBytesMax));
      found.push_back({.worker = worker.name, .why = std::move(why)});
    }
  }
  return found;
}

void Rollout::remember(const std::string& version, const std::string& digest) {
  std::erase_if(versions_, [&](const NamedWeights& named) { return named.first == version; });
  if (digest.empty()) {
    return;  // No worker has told it.
  }
  if (versions_.size() >= kVersionsKept) {
    versions_.erase(versions_.begin());
  }
  versions_.emplace_back(version, digest);
}

bool Rollout::names_others(const std::string& version, const std::string& digest) const {
  return std::ranges::any_of(versions_, [&](const NamedWeights& named) {
    return named.first == version && named.second != digest;
  });
}

std::string Rollout::next_name() const {
  for (uint64_t number = updates_ + 1;; ++number) {
    std::string name = "update-" + std::to_string(number);
    if (std::ranges::find(versions_, name, &NamedWeights::first) == versions_.end()) {
      return name;
    }
  }
}

// Workers that were registered with other weights have left.
const std::string& Rollout::digest_in_use() const {
  if (!published_.digest.empty()) {
    return published_.digest;
  }
  const auto one = std::ranges::find_if(fleet_.workers, [this](const WorkerSeen& worker) {
    return worker.serves() && worker.version == published_.version;
  });
  return one == fleet_.workers.end() ? published_.digest : one->digest;
}

void Rollout::answer_waiting(uint16_t status, const std::string& message, Turn& turn) {
  for (const Ticket& ticket : std::exchange(waiting_, {})) {
    answer(ticket, status, message, turn);
  }
}

void Rollout::answer(const Ticket& to, uint16_t status, const std::string& message, Turn& turn) {
  net::OrderAnswered told = report();
  told.id = to.id;
  told.status = status;
  told.message = message.substr(0, limits::kControlStringBytesMax);
  if (status != kDone) {
    note("order refused or failed: " + message, turn);
  }
  if (answered_.size() >= kOrdersAnsweredMax) {
    answered_.pop_front();
  }
  answered_.emplace_back(to, told);
  turn.effects.emplace_back(AnswerOrder{to, std::move(told)});
}

void Rollout::note(std::string text, Turn& turn) {
  turn.effects.emplace_back(OrderNoted{std::move(text)});
}

}  // namespace pdjob::launcher
