#include "launcher/job/membership_log.h"

#include <algorithm>
#include <iterator>

#include "common/limits.h"

namespace pdjob::launcher {

MembershipLog::Known MembershipLog::known_of(const Process& process) {
  const bool leaving = process.state == ProcessState::kDraining && !process.is_router() &&
                       !process.entry.engine_id.empty();
  return {.incarnation = process.incarnation,
          .member = !process.is_batch() && ((process.serving() && !process.suspected) || leaving),
          .standing = leaving ? net::Standing::kLeaving
                      : process.state == ProcessState::kReady && !process.spare
                          ? net::Standing::kServing
                          : net::Standing::kProving,
          .shares_cores = process.shares_cores,
          .loss = process.loss,
          .adapters = process.entry.adapters};
}

// The process is a worker that is to run, or it is not.
void MembershipLog::note_stays(Listed& row, bool stays) {
  const bool asleep = staying_ == 0;
  staying_ -= row.stays ? 1 : 0;
  staying_ += stays ? 1 : 0;
  row.stays = stays;
  changed_ = changed_ || (asleep != (staying_ == 0) && !listeners_.empty());
}

void MembershipLog::update(const Process& process) {
  const auto [found, is_new] = by_name_.try_emplace(process.name);
  if (is_new) {
    found->second = rows_.insert(rows_.begin(), Listed{.name = process.name});  // Never changed.
  }
  Listed& row = *found->second;
  row.role = process.role;
  forgotten_.erase({row.changed_in, row.name});
  note_stays(row, process.is_worker() && process.fate != Fate::kEnd);
  const Known known = known_of(process);
  if (process.is_router() && process.serving()) {
    Listener& listener = listeners_[process.name];
    if (listener.engine_id != process.engine_id) {
      listener = {.engine_id = process.engine_id};
    }
  } else {
    listeners_.erase(process.name);
  }
  if (known == row.known || (!known.member && !row.known.member && !row.departure)) {
    row.known = known;
    return;
  }
  const auto before = row.departure;
  if (row.known.member && (!known.member || known.incarnation != row.known.incarnation)) {
    row.departure = {.name = row.name, .engine_id = row.engine_id};
  }
  if (row.departure && row.departure->engine_id == process.engine_id) {
    row.departure->cause = known.loss;
    if (known.member) {
      row.departure.reset();  // It was only suspected, and is back.
    }
  }
  const bool told = known.member || row.known.member || row.departure != before;
  row.known = known;
  if (known.member) {
    row.entry = process.entry;
    row.entry.standing = known.standing;
    row.entry.shares_cores = known.shares_cores;
    row.engine_id = process.engine_id;
  }
  if (told) {
    row.changed_in = version_ + 1;
    changed_ = true;
    rows_.splice(rows_.end(), rows_, found->second);
  }
}

void MembershipLog::forget(const Process& process) {
  if (const auto found = by_name_.find(process.name); found != by_name_.end()) {
    forgotten_.emplace(found->second->changed_in, process.name);
    note_stays(*found->second, false);
  }
  listeners_.erase(process.name);
  drop_forgotten();
}

// Forgets rows that every router knows to be gone.
void MembershipLog::drop_forgotten() {
  uint64_t known_to_all = version_ + 1;
  for (const auto& [name, listener] : listeners_) {
    known_to_all = std::min(known_to_all, listener.applied);
  }
  while (!forgotten_.empty() && forgotten_.begin()->first <= known_to_all) {
    const auto found = by_name_.find(forgotten_.begin()->second);
    rows_.erase(found->second);
    by_name_.erase(found);
    forgotten_.erase(forgotten_.begin());
  }
}

void MembershipLog::publish(Turn& turn) {
  if (!changed_) {
    return;
  }
  changed_ = false;
  ++version_;
  for (auto& [name, listener] : listeners_) {
    if (listener.applied == listener.sent || turn.now >= listener.sent_at + retry_) {
      send(name, listener, listener.applied, turn);
    }
  }
}

net::Membership MembershipLog::since(uint64_t version) const {
  net::Membership list{.version = version_, .since = version, .asleep = staying_ == 0};
  for (auto row = rows_.rbegin(); row != rows_.rend() && row->changed_in > version; ++row) {
    if (row->known.member) {
      (row->role == net::Role::kRouter  ? list.routers
       : row->role == net::Role::kStore ? list.stores
                                        : list.workers)
          .push_back(row->entry);
    }
    if (row->departure && list.left.size() < limits::kWorkersMax &&
        (version > 0 || row->departure->cause >= net::LossCause::kCrash)) {
      list.left.push_back(*row->departure);
    }
  }
  return list;
}

void MembershipLog::send(const std::string& router, Listener& listener, uint64_t version,
                         Turn& turn) {
  listener.sent = version_;
  listener.sent_at = turn.now;
  turn.emit(Send{router, since(version)});
}

void MembershipLog::applied(const Process& router, const net::MembershipApplied& message,
                            Turn& turn) {
  const auto found = listeners_.find(router.name);
  if (found == listeners_.end() || message.engine_id != found->second.engine_id ||
      message.version > found->second.sent || message.version <= found->second.applied) {
    return;
  }
  Listener& listener = found->second;
  listener.applied = message.version;
  drop_forgotten();
  if (listener.applied == listener.sent && listener.applied < version_) {
    send(router.name, listener, listener.applied, turn);
  }
}

void MembershipLog::beat(const Process& router, Turn& turn) {
  const auto listener = listeners_.find(router.name);
  if (listener != listeners_.end() && listener->second.applied < version_ &&
      turn.now >= listener->second.sent_at + retry_) {
    send(router.name, listener->second, 0, turn);  // One of the two messages was lost.
  }
}

void MembershipLog::report_load(const Process& worker, Turn& turn) const {
  for (const auto& [name, listener] : listeners_) {
    turn.emit(Send{name, net::LoadReported{worker.name, worker.engine_id, worker.load}});
  }
}

bool MembershipLog::knows(const std::string& router, const std::string& process) const {
  const auto listener = listeners_.find(router);
  const auto row = by_name_.find(process);
  return listener != listeners_.end() && row != by_name_.end() &&
         listener->second.applied >= row->second->changed_in;
}

bool MembershipLog::confirmed() const {
  return std::ranges::all_of(
      listeners_, [this](const auto& listener) { return listener.second.applied == version_; });
}

bool MembershipLog::all_know(const std::string& process) const {
  return std::ranges::all_of(listeners_,
                             [&](const auto& listener) { return knows(listener.first, process); });
}

}  // namespace pdjob::launcher
