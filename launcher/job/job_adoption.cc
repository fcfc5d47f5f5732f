// How a Job goes on with what an earlier launcher left (job.h).
//
// It begins with all processes as recorded: those that ran are members at once, so routers keep
// them. Nothing is started or given up on a node until the node has joined and said what runs
// there. A node that does not join within adopt_timeout is lost.
#include <algorithm>
#include <utility>

#include "launcher/job/job.h"

namespace pdjob::launcher {

namespace {

// They restart, as a member does; only their state says that they are alive.
bool ran(const ProcessRecord& record) {
  switch (record.state) {
    case ProcessState::kStarting:
    case ProcessState::kRegistered:
    case ProcessState::kReady:
    case ProcessState::kHung:
    case ProcessState::kDraining:
      return record.incarnation.value > 0;
    case ProcessState::kWaiting:
    case ProcessState::kExited:
    case ProcessState::kBackoff:
      return false;
  }
  return false;
}

}  // namespace

JobRecord Job::record() const {
  JobRecord record{.ready = state_ == JobState::kReady,
                   .warm = state_ == JobState::kDone && keeps_warm_,
                   .incarnations_made = supervision_.incarnations_made(),
                   .weights = weights_};
  for (const NodeShare& share : placement_.shares()) {
    if (record.nodes.size() == kNodesMax) {
      break;  // Nodes that are awaited and nodes that joined can be too many together.
    }
    record.nodes.push_back(share.node());
  }
  record.trust = trust_.record();
  for (const Process& process : processes_) {
    if (!record.warm || stays(process)) {
      record.processes.push_back(process);
    }
  }
  if (record.warm) {
    return record;  // The next job has its own sizes.
  }
  for (const JobGroup& group : groups_) {
    record.sizes.emplace_back(group.name, group.wanted);
  }
  return record;
}

void Job::take(const JobRecord& record) {
  state_ = record.ready ? JobState::kReady : JobState::kStarting;
  trust_ = NodeTrust(record.trust);
  for (const Node& node : record.nodes) {
    absent_.insert(node.name);
  }
  for (const auto& [name, size] : record.sizes) {
    const auto group = std::ranges::find(groups_, name, &JobGroup::name);
    if (group != groups_.end()) {
      group->wanted = size;
    }
  }
  for (const ProcessRecord& row : record.processes) {
    Process& process = add(row);
    const Place place = process.place;  // None, if nodes are not known.
    static_cast<ProcessRecord&>(process) = row;
    process.place = place;
    if (!ran(row) || process.place.node.empty()) {
      process.state = ProcessState::kWaiting;
    } else {
      process.heard = false;
      by_incarnation_.emplace(process.incarnation.value, &process);
    }
  }
}

void Job::begin_adoption(Turn& turn) {
  adopt_deadline_ = turn.now + timing_.adopt_timeout;
  for (auto row = processes_.begin(); row != processes_.end();) {
    Process& process = *row++;  // It may be removed.
    if (process.alive()) {
      const bool leaves = supervision_.adopt(process, turn);
      if (leaves) {
        leaving_.push_back(&process);
      }
    }
    settle(process);
  }
  if (absent_.empty()) {
    end_adoption(turn);
  }
}

// What runs there and is not ours to keep is killed: it is an incarnation that was given up.
void Job::take_stock(const NodeJoined& event, Turn& turn) {
  std::unordered_set<const Process*> here;
  for (const RunningProcess& running : event.running) {
    Process* const process = living(running.incarnation);
    if (process == nullptr || !process->place.has_part_on(event.node.name)) {
      turn.emit(SendSignal{running.incarnation, Signal::kKill, event.node.name});
      continue;
    }
    process->pid = process->place.node == event.node.name ? running.pid : process->pid;
    here.insert(process);
    supervision_.repeat_signal(*process, turn);
  }
  if (absent_.erase(event.node.name) == 0) {
    return;
  }
  adopted_ += static_cast<uint64_t>(std::ranges::count_if(
      here, [&](const Process* process) { return process->place.node == event.node.name; }));
  for (auto row = processes_.begin(); row != processes_.end();) {
    Process& process = *row++;  // It may be removed.
    if (process.place.has_part_on(event.node.name) && process.alive() && !here.contains(&process)) {
      part_died(process, event.node.name, "it ended while the job had no launcher",
                net::LossCause::kOutside, turn);
    }
  }
  if (absent_.empty()) {
    end_adoption(turn);
  }
}

void Job::give_up_absent(Turn& turn) {
  for (const std::string& node : std::exchange(absent_, {})) {
    on(NodeLost{node, "its agent did not come back to the new launcher"}, turn);
  }
  end_adoption(turn);
}

void Job::end_adoption(Turn& turn) {
  adopt_deadline_ = kNever;
  room_made_ = true;  // Looks for places of those that wait.
  turn.emit(ReportAdopted{.adopted = adopted_, .processes = processes_.size()});
  for (; !stops_asked_.empty(); stops_asked_.pop_front()) {
    on(StopAsked(stops_asked_.front()), turn);
  }
  if (!runs()) {
    return;
  }
  // A job of which nothing is left starts as any other. One that was scaled to zero had nothing but
  // its routers, and no probe can prove these.
  const bool has_workers =
      std::ranges::any_of(processes_, [](const Process& process) { return process.is_worker(); });
  if (state_ == JobState::kReady && (adopted_ > 0 || !has_workers)) {
    become_ready(turn);
  } else {
    state_ = JobState::kStarting;
    start_deadline_ = turn.now + timing_.start_timeout;
  }
}

}  // namespace pdjob::launcher
