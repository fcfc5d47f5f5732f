// What a Job hears of its nodes, and of what runs there (job.h). A node speaks for its own
// processes only.
#include <algorithm>

#include "launcher/job/job.h"

namespace pdjob::launcher {

uint64_t Job::room(const Demand& demand, uint64_t enough) const {
  return places_ ? placement_.room(demand, {}, enough) : enough;
}

std::string Job::lack(const Demand& demand) const {
  return room(demand, 1) > 0 ? "" : placement_.nearest(demand);
}

void Job::on(const NodeBlamed& event, Turn& turn) { blame(event.name, NodeTrust::kSlow, turn); }

void Job::blame(const std::string& node, double weight, Turn& turn) {
  if (placement_.has(node)) {
    trust_.blame(node, weight, turn.now);
  }
}

bool Job::has_room_elsewhere(const Process& process, Instant now) const {
  return places_ &&
         placement_.has_room_elsewhere(process.demand, process.place.node,
                                       trust_.level(process.place.node, now), trust_.levels(now));
}

void Job::on(const NodeJoined& event, Turn& turn) {
  placement_.add(event.node);
  take_stock(event, turn);
  room_made_ = true;
}

void Job::on(const NodeLost& event, Turn& turn) {
  blame(event.name, NodeTrust::kDeath, turn);
  placement_.remove(event.name);
  for (auto row = processes_.begin(); row != processes_.end();) {
    Process& process = *row++;  // It may be removed.
    if (!process.place.has_part_on(event.name) || !places_) {
      continue;
    }
    const Place place = process.place;
    give_back_place(process);
    const bool alive = process.alive();
    if (process.is_store()) {
      end_store(process, turn);
    }
    if (!alive) {
      continue;
    }
    for (const PlacePart& part : place.parts()) {
      if (part.node != event.name) {
        turn.emit(SendSignal{process.incarnation, Signal::kKill, part.node});
      }
    }
    died(process, "node " + event.name + " is lost: " + event.why, net::LossCause::kOutside, turn);
  }
}

void Job::on(const Spawned& event, Turn&) {
  Process* const process = living_on(event.node, event.incarnation);
  if (process != nullptr && (!places_ || process->place.node == event.node)) {
    process->pid = event.pid;
  }
}

void Job::on(const SpawnFailed& event, Turn& turn) {
  if (Process* process = living_on(event.node, event.incarnation)) {
    part_died(*process, event.node, event.reason, net::LossCause::kOutside, turn);
  }
}

void Job::on(const ProcessExited& event, Turn& turn) {
  if (Process* process = living_on(event.node, event.incarnation)) {
    const bool crashed = event.crashed && !group_changes(*process);
    part_died(*process, event.node, event.how,
              crashed ? net::LossCause::kCrash : net::LossCause::kOutside, turn);
  }
}

// A node may be wrong, or lie: what it may have left running must not serve beside the next
// incarnation. One part's death ends all.
void Job::part_died(Process& process, const std::string& node, const std::string& how,
                    net::LossCause cause, Turn& turn) {
  supervision_.signal(process, Signal::kKill, turn);
  if (process.fate == Fate::kRestart && process.is_worker()) {
    blame(node, NodeTrust::kDeath, turn);
  }
  died(process, process.place.more.empty() ? how : how + " on node " + node, cause, turn);
}

void Job::on(const ProcessSeen& event, Turn& turn) {
  if (Process* process = living_on(event.node, event.incarnation); process != nullptr && runs()) {
    supervision_.seen(*process, event.signs, turn);
    settle(*process);
  }
}

Process* Job::living(Incarnation incarnation) {
  const auto found = by_incarnation_.find(incarnation.value);
  return found == by_incarnation_.end() ? nullptr : found->second;
}

Process* Job::living_on(const std::string& node, Incarnation incarnation) {
  Process* const process = living(incarnation);
  return process == nullptr || (places_ && !process->place.has_part_on(node)) ? nullptr : process;
}

}  // namespace pdjob::launcher
