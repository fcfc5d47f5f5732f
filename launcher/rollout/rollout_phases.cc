// The phases of a trainer's order, one after the other (rollout.h).
#include <algorithm>

#include "launcher/rollout/rollout.h"

namespace pdjob::launcher {

namespace {

// While the fleet could reopen, workers that start again are waited for.
constexpr Duration kStragglerGrace = std::chrono::seconds(10);

}  // namespace

void Rollout::proceed(Turn& turn) {
  if (phase_ == Phase::kPreparing) {
    const auto answered = [this](const WorkerSeen& worker) {
      return !worker.serves() || prepared_.contains(worker.engine_id) || fell(worker);
    };
    const bool all = std::ranges::all_of(fleet_.workers, answered);
    if (all && !prepared_.empty()) {
      end_preparing(turn);
    } else if (all && std::ranges::any_of(fleet_.workers, &WorkerSeen::serves)) {
      give_up(kFailed, "no worker outlived the reading of " + order_.path, turn);
    }
  }
  if (phase_ == Phase::kClosing && order_.kind == net::OrderKind::kFlush && routers_applied() &&
      !quiet()) {
    give_up(kRefused, "requests still run", turn);
  }
  if (phase_ == Phase::kClosing && closed_ && quiet()) {
    end_closing(turn);
  }
  if (phase_ == Phase::kApplying && can_serve()) {
    const bool all = std::ranges::all_of(fleet_.workers, [this](const WorkerSeen& worker) {
      return serves_new(worker) || !expected_.contains(worker.name);
    });
    if (all || (!moves() && turn.now >= phase_began_ + kStragglerGrace)) {
      publish(turn);
    }
  }
}

void Rollout::end_preparing(Turn& turn) {
  const net::WeightsPrepared& first = prepared_.begin()->second;
  for (const auto& [engine_id, answer] : prepared_) {
    if (answer.digest != first.digest) {
      give_up(kFailed,
              "the workers read different weights: " + first.engine_id + " has digest " +
                  first.digest + ", " + engine_id + " has " + answer.digest,
              turn);
      return;
    }
  }
  const bool same_weights = !unpublished_ && first.digest == digest_in_use();
  if (same_weights && order_.version.empty()) {
    give_up(kDone, "these weights are in use", turn);
    return;
  }
  if (names_others(order_.version, first.digest) ||
      (unpublished_ && order_.version == published_.version && first.digest != digest_in_use())) {
    give_up(kRefused, "version " + order_.version + " names other weights already", turn);
    return;
  }
  next_ = {.path = first.path,
           .version = order_.version.empty() ? next_name() : order_.version,
           .digest = first.digest};
  parts_.preparing = turn.now - phase_began_;
  parts_.bytes = first.bytes;
  enter(Phase::kClosing, timing_.quiesce_timeout, turn);
  if (!closed_) {
    mode_ = order_.mode;
    set_admission(true, turn);
  }
}

void Rollout::end_closing(Turn& turn) {
  parts_.closing = turn.now - phase_began_;
  if (order_.kind != net::OrderKind::kPause) {
    apply(turn);
    return;
  }
  paused_ = true;
  phase_ = Phase::kIdle;
  deadline_ = kNever;
  answer_waiting(kDone, "paused", turn);
}

void Rollout::apply(Turn& turn) {
  ApplyWeights apply{.weights = next_, .prepared = {}};
  if (!unpublished_) {
    remember(published_.version, digest_in_use());
  }
  old_engines_.clear();
  expected_.clear();
  for (const WorkerSeen& worker : fleet_.workers) {
    old_engines_.insert(worker.engine_id);
    if (worker.serves()) {
      expected_.insert(worker.name);
    }
    const bool prepared = prepared_.contains(worker.engine_id);
    if (worker.serves() && (prepared || order_.kind != net::OrderKind::kUpdate)) {
      apply.prepared.emplace(worker.engine_id,
                             order_.kind == net::OrderKind::kUpdate ? orders_ : 0);
    }
  }
  turn.effects.emplace_back(std::move(apply));
  chosen_ = next_;
  unpublished_ = true;
  applied_order_ = order_;
  applied_at_ = turn.now;
  if (order_.kind == net::OrderKind::kUpdate) {
    ++updates_;
    asked_path_ = order_.path;
  }
  grace_due_ = turn.now + kStragglerGrace;
  enter(Phase::kApplying, timing_.apply_timeout, turn);
}

bool Rollout::serves_new(const WorkerSeen& worker) const {
  return worker.state == ProcessState::kReady && worker.version == next_.version &&
         !old_engines_.contains(worker.engine_id);
}

bool Rollout::can_serve() const {
  std::map<net::Role, bool> roles;
  for (const WorkerSeen& worker : fleet_.workers) {
    roles[worker.role] = roles[worker.role] || serves_new(worker);
  }
  return !roles.empty() && std::ranges::all_of(roles, [](const auto& role) { return role.second; });
}

bool Rollout::moves() const {
  return std::ranges::any_of(fleet_.workers, [this](const WorkerSeen& worker) {
    return worker.state == ProcessState::kDraining || worker.state == ProcessState::kRegistered ||
           (worker.state == ProcessState::kReady && !serves_new(worker));
  });
}

void Rollout::publish(Turn& turn) {
  published_ = chosen_ = next_;
  unpublished_ = false;
  remember(published_.version, published_.digest);
  parts_.applying = turn.now - phase_began_;
  phase_ = Phase::kIdle;
  deadline_ = grace_due_ = kNever;
  prepared_.clear();
  old_engines_.clear();
  if (order_.kind == net::OrderKind::kUpdate) {
    paused_ = paused_ || order_.keeps_pause;
    note("the fleet serves " + published_.version, turn);
  }
  if (!paused_) {
    set_admission(false, turn);
  }
  const auto missing = troubles(published_);
  answer_waiting(kDone,
                 missing.empty() ? "done"
                                 : "done, without " + missing.front().worker +
                                       (missing.size() > 1 ? " and others" : ""),
                 turn);
}

void Rollout::give_up(uint16_t status, const std::string& why, Turn& turn) {
  if (phase_ == Phase::kPreparing || order_.kind == net::OrderKind::kUpdate) {
    ++orders_;
    for (const WorkerSeen& worker : fleet_.workers) {
      turn.effects.emplace_back(
          TellProcess{worker.name, net::PrepareWeights{.order = orders_, .path = {}}});
    }
  }
  prepared_.clear();
  phase_ = Phase::kIdle;
  deadline_ = kNever;
  const bool heals = unpublished_;  // An earlier update has not ended yet.
  if (heals) {
    next_ = chosen_;
    phase_ = Phase::kApplying;
    phase_began_ = applied_at_;
    grace_due_ = turn.now + kStragglerGrace;
  } else if (closed_ && !paused_) {
    set_admission(false, turn);
  }
  answer_waiting(status, why, turn);
  if (heals) {
    order_ = applied_order_;
  }
}

}  // namespace pdjob::launcher
