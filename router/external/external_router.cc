#include "router/external/external_router.h"

#include <algorithm>
#include <utility>

namespace pdjob::router {
namespace {

template <class Map>
bool same_names(const Map& a, const Map& b) {
  return std::ranges::equal(
      a, b, [](const auto& one, const auto& other) { return one.first == other.first; });
}

}  // namespace

void ExternalRouter::step(const ExternalEvent& event, Instant now,
                          std::vector<ExternalEffect>& effects) {
  Turn turn{now, effects};
  std::visit([&](const auto& body) { on(body, turn); }, event);
  check_deadlines(turn);
  if (!draining_ && !given_up_) {
    reconcile(turn);
  }
}

Instant ExternalRouter::next_wakeup() const {
  Instant next = kNever;
  for (const Instance& instance : instances_) {
    next = std::min(next, instance.deadline);
    if (!instance.asked && !draining_) {
      next = std::min(next, instance.next_check);
    }
  }
  return draining_ || given_up_ ? next : std::min(next, start_due());
}

// --- events

void ExternalRouter::on(const MembersChanged& event, Turn& turn) {
  version_ = event.version;
  Members members;
  for (const net::WorkerEntry& worker : event.workers) {
    members.emplace(recipe_member_name(recipe_, worker), worker);
  }
  if (same_names(members, wanted_)) {
    wanted_ = std::move(members);
    return;
  }
  wanted_ = std::move(members);
  changed_at_ = turn.now;
  if (Instance* const serving = find(State::kServing)) {
    changed(*serving, turn);
  }
}

void ExternalRouter::changed(Instance& serving, Turn& turn) {
  if (recipe_.membership == MembershipBy::kHttp) {
    serving.tell_again = serving.next_check = turn.now;
    serving.deadline = turn.now + kTellTimeout;
  }
}

void ExternalRouter::on(const InstanceExited& event, Turn& turn) {
  Instance* const instance = find(event.instance);
  if (instance == nullptr) {
    return;
  }
  const State state = instance->state;
  std::erase_if(instances_, [&](const Instance& each) { return each.id == event.instance; });
  if (state == State::kServing) {
    turn.emit(PassTo{});
  }
  if (state != State::kEnding) {
    died(event.how, turn);
  }
  if (draining_ && instances_.empty()) {
    turn.emit(ExternalDrained{});
  }
}

void ExternalRouter::died(const std::string& how, Turn& turn) {
  not_before_ = turn.now + std::min(kBackoffMax, kBackoffMin * (1 << std::min(deaths_, 8U)));
  ++deaths_;
  if (deaths_ >= kDeathsMax && !draining_) {
    given_up_ = true;
    turn.emit(GiveUp{"it was not ready " + std::to_string(deaths_) + " times, last: " + how});
  }
}

void ExternalRouter::on(const ReadyChecked& event, Turn& turn) {
  Instance* const instance = find(event.instance);
  if (instance == nullptr || instance->state != State::kStarting) {
    return;
  }
  instance->asked = false;
  instance->ready = event.ready;
  instance->next_check = turn.now + (event.ready ? Duration::zero() : kCheckInterval);
  if (event.ready && !reads_back()) {
    serve(*instance, turn);
  }
}

void ExternalRouter::on(const MembersRead& event, Turn& turn) {
  Instance* const instance = find(event.instance);
  if (instance == nullptr || instance->state == State::kEnding) {
    return;
  }
  instance->asked = false;
  instance->next_check = turn.now + kCheckInterval;
  if (!event.names) {
    return;
  }
  if (instance->state == State::kServing) {
    review(*instance, *event.names, turn);
  } else if (std::ranges::all_of(instance->told, [&](const auto& member) {
               return event.names->contains(member.first) || !wanted_.contains(member.first);
             })) {
    serve(*instance, turn);
  }
}

void ExternalRouter::on(const DrainAsked&, Turn& turn) {
  if (std::exchange(draining_, true)) {
    return;
  }
  for (Instance& instance : instances_) {
    if (instance.state != State::kEnding) {
      end(instance, instance.state == State::kStarting, turn);
    }
  }
  if (instances_.empty()) {
    turn.emit(ExternalDrained{});
  }
}

// --- timeouts

void ExternalRouter::check_deadlines(Turn& turn) {
  for (size_t i = 0; i < instances_.size(); ++i) {
    if (turn.now >= instances_[i].deadline) {
      instances_[i].deadline = kNever;
      missed_deadline(instances_[i], turn);
    }
  }
}

void ExternalRouter::missed_deadline(Instance& instance, Turn& turn) {
  switch (instance.state) {
    case State::kStarting:
      end(instance, true, turn);
      died("it took longer than start_timeout", turn);
      break;
    case State::kServing:  // It did not apply the change: a new instance learns at its start.
      if (!draining_ && complete() && find(State::kStarting) == nullptr) {
        start(turn);
      }
      break;
    case State::kEnding:
      turn.emit(EndInstance{instance.id, true});
      break;
  }
}

// --- the wanted state

void ExternalRouter::reconcile(Turn& turn) {
  if (turn.now >= start_due()) {
    if (Instance* const starting = find(State::kStarting)) {
      end(*starting, true, turn);  // It is outdated already.
    }
    start(turn);
  }
  for (Instance& instance : instances_) {
    if (!instance.asked && turn.now >= instance.next_check) {
      check(instance, turn);
    }
  }
  const Instance* const serving = find(State::kServing);
  if (serving != nullptr && serving->next_check == kNever && !serving->asked &&
      is_current(*serving)) {
    applied(turn);
  }
}

// When to start an instance; kNever: the newest one will do.
Instant ExternalRouter::start_due() const {
  if (!complete()) {
    return kNever;
  }
  const Instance* newest = find(State::kStarting);
  newest = newest == nullptr ? find(State::kServing) : newest;
  if (newest != nullptr && (recipe_.membership != MembershipBy::kRestart || is_current(*newest))) {
    return kNever;
  }
  return std::max(not_before_, changed_at_ + kSettle);
}

void ExternalRouter::check(Instance& instance, Turn& turn) {
  instance.next_check = kNever;
  if (instance.state == State::kServing && !reads_back()) {
    return;  // It cannot be asked.
  }
  instance.asked = true;
  if (instance.state == State::kServing || instance.ready) {
    turn.emit(ReadMembers{instance.id});
  } else {
    turn.emit(CheckReady{instance.id});
  }
}

void ExternalRouter::start(Turn& turn) {
  const InstanceId id{++instances_made_};
  if (instances_.size() >= kInstancesMax) {
    const auto oldest = std::ranges::find(instances_, State::kEnding, &Instance::state);
    if (oldest != instances_.end()) {
      turn.emit(EndInstance{oldest->id, true});
    }
  }
  turn.emit(StartInstance{id, workers()});
  instances_.push_back({.id = id,
                        .told = wanted_,
                        .next_check = turn.now + kCheckInterval,
                        .deadline = turn.now + recipe_.start_timeout});
}

void ExternalRouter::serve(Instance& instance, Turn& turn) {
  if (Instance* const old = find(State::kServing)) {
    end(*old, false, turn);
  }
  instance.state = State::kServing;
  instance.deadline = kNever;
  instance.next_check = turn.now;
  deaths_ = 0;
  turn.emit(PassTo{instance.id});
  if (!is_current(instance)) {
    changed(instance, turn);
  }
}

void ExternalRouter::end(Instance& instance, bool at_once, Turn& turn) {
  instance.state = State::kEnding;
  instance.next_check = kNever;
  instance.deadline = at_once ? kNever : turn.now + recipe_.drain_timeout;
  turn.emit(EndInstance{instance.id, at_once});
}

// --- telling a running instance

void ExternalRouter::review(Instance& serving, const std::set<std::string>& names, Turn& turn) {
  std::erase_if(serving.told, [&](const auto& member) {
    return !wanted_.contains(member.first) && !names.contains(member.first);
  });
  const bool has_all = std::ranges::all_of(
      wanted_, [&](const auto& member) { return names.contains(member.first); });
  const bool has_more = std::ranges::any_of(
      serving.told, [&](const auto& member) { return !wanted_.contains(member.first); });
  if (has_all && !has_more) {
    serving.told = wanted_;
    serving.deadline = kNever;
    serving.next_check = turn.now + kReviewInterval;
    applied(turn);
  } else if (recipe_.membership == MembershipBy::kHttp && turn.now >= serving.tell_again) {
    tell(serving, names, turn);
  }
}

void ExternalRouter::tell(Instance& serving, const std::set<std::string>& names, Turn& turn) {
  serving.tell_again = turn.now + kTellAgain;
  if (serving.deadline == kNever) {
    serving.deadline = turn.now + kTellTimeout;  // It lost a worker on its own.
  }
  for (const auto& [name, worker] : wanted_) {
    if (!names.contains(name)) {
      serving.told.emplace(name, worker);
      turn.emit(TellOf{serving.id, name, worker, true});
    }
  }
  for (const auto& [name, worker] : serving.told) {
    if (!wanted_.contains(name)) {
      turn.emit(TellOf{serving.id, name, worker, false});
    }
  }
}

void ExternalRouter::applied(Turn& turn) {
  if (version_ > version_applied_) {
    version_applied_ = version_;
    turn.emit(MembersApplied{version_});
  }
}

// --- looking up

// A router without workers to send requests to cannot become ready.
bool ExternalRouter::complete() const {
  const auto has = [this](net::Role role) {
    return std::ranges::any_of(wanted_,
                               [role](const auto& member) { return member.second.role == role; });
  };
  return plain_ ? !wanted_.empty() : has(net::Role::kPrefill) && has(net::Role::kDecode);
}

bool ExternalRouter::is_current(const Instance& instance) const {
  return same_names(instance.told, wanted_);
}

std::vector<net::WorkerEntry> ExternalRouter::workers() const {
  std::vector<net::WorkerEntry> all;
  for (const auto& [name, worker] : wanted_) {
    all.push_back(worker);
  }
  return all;
}

const ExternalRouter::Instance* ExternalRouter::find(State state) const {
  const auto found = std::ranges::find(instances_, state, &Instance::state);
  return found == instances_.end() ? nullptr : &*found;
}

ExternalRouter::Instance* ExternalRouter::find(State state) {
  return const_cast<Instance*>(std::as_const(*this).find(state));
}

ExternalRouter::Instance* ExternalRouter::find(InstanceId id) {
  const auto found = std::ranges::find(instances_, id, &Instance::id);
  return found == instances_.end() ? nullptr : &*found;
}

}  // namespace pdjob::router
