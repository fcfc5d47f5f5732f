// How a Job becomes what its groups say (groups.h), and how a process follows its group.
#include <algorithm>
#include <utility>

#include "launcher/job/job.h"

namespace pdjob::launcher {

namespace {

// A heartbeat may have changed what a replacement waits for.
constexpr Duration kConvergeAgain = std::chrono::milliseconds(500);

}  // namespace

void Job::on(const GroupsChanged& event, Turn& /*turn*/) {
  groups_ = event.groups;
  room_made_ = true;  // Those that wait may need less.
  spares_due_ = true;
}

void Job::choose_spares() {
  if (!std::exchange(spares_due_, false)) {
    return;
  }
  for (const SpareChange& change : spare_changes(groups_, *this)) {
    Process& process = *find_mutable(change.process);
    process.spare = change.spare;
    settle(process);
  }
  spares_due_ = false;
}

void Job::converge(Turn& turn) {
  converge_due_ = kNever;
  if (!runs() || adopting()) {
    return;
  }
  for (bool moves = true; moves;) {
    if (std::exchange(room_made_, false)) {
      start_waiting(turn);
    }
    moves = false;
    const std::vector<GroupStep> steps = state_ == JobState::kReady
                                             ? next_steps(groups_, *this, turn.now)
                                             : std::vector<GroupStep>();
    for (const GroupStep& step : steps) {
      moves = take(step, turn) || moves;
    }
  }
  add_stores(turn);
  if (state_ == JobState::kReady && !up_to_date(groups_, *this)) {
    converge_due_ = turn.now + kConvergeAgain;
  }
}

// Its group may have shrunk while it drained.
bool Job::is_surplus(const Process& process, Instant now) const {
  return state_ == JobState::kReady && !adopting() &&
         std::ranges::any_of(next_steps(groups_, *this, now), [&](const GroupStep& step) {
           return step.kind == GroupStep::Kind::kRetire && step.process == process.name;
         });
}

// False: it is not possible now.
bool Job::take(const GroupStep& step, Turn& turn) {
  if (step.kind == GroupStep::Kind::kAdd) {
    const auto workers =
        std::ranges::count_if(processes_, [](const Process& each) { return each.is_worker(); });
    if (std::cmp_greater_equal(workers, limits::kWorkersMax)) {
      return false;
    }
    start(add({.name = step.process,
               .role = step.group->role,
               .model = step.group->model,
               .demand = step.group->demand}),
          turn);
    return true;
  }
  Process* const process = find_mutable(step.process);
  if (process == nullptr || process->fate != Fate::kRestart) {
    return false;
  }
  if (step.kind == GroupStep::Kind::kRetire) {
    dismiss(*process, Fate::kEnd, turn);
  } else {
    start_again(*process, step.group->role, turn);
  }
  return true;
}

// It leaves first. A worker that changes its role keeps its model, if it can.
void Job::start_again(Process& process, net::Role role, Turn& turn) {
  process.next_role = role;
  process.keeps_model = role != process.role && keeps_model(process, role);
  process.weights_order = 0;
  process.next_version.clear();
  dismiss(process, Fate::kChangeRole, turn);
}

void Job::on(const ReplaceAsked& event, Turn& turn) {
  Process* const process = find_mutable(event.name);
  if (process != nullptr && runs() && process->serving() && process->fate == Fate::kRestart &&
      process->is_worker()) {
    process->replacements += 1;
    if (event.slow) {
      blame(process->place.node, NodeTrust::kSlow, turn);
    }
    start_again(*process, process->role, turn);
  }
}

// A place of the same size stays, and so does what is loaded there.
bool Job::keeps_model(const Process& process, net::Role next) const {
  const JobGroup* const group = group_of(next, process.model);
  const Demand& now = process.demand;
  return !process.is_foreign() &&
         (group == nullptr ||
          (group->spec == process.spec && group->demand.parts == now.parts &&
           group->demand.cores == now.cores && group->demand.gpus == now.gpus &&
           group->demand.memory_bytes == now.memory_bytes && group->demand.file == now.file));
}

// To routers, an engine has left, and another one comes.
void Job::changed_role(Process& process, const net::Registered& message, Turn& turn) {
  process.loss = net::LossCause::kOutside;
  process.state = ProcessState::kStarting;
  settle(process);
  const JobGroup* const group = group_of(process.next_role, process.model);
  if (group != nullptr && places_) {
    placement_.release(process.place, process.demand);
    placement_.take(process.place, group->demand);
  }
  process.demand = group == nullptr ? process.demand : group->demand;
  process.spec = group == nullptr ? process.spec : group->spec;
  process.restart_policy = RestartPolicy(timing_.restart);
  supervision_.changed_role(process, turn);
  supervision_.registered(process, message, turn);
  std::erase(leaving_, &process);
  settle(process);
}

void Job::follow_changed_group(Process& process) {
  const JobGroup* const group = group_of(process.role, process.model);
  if (group != nullptr && group->spec != process.spec) {
    follow_group(process);
  }
}

// A worker of another role, or of a group that has changed, may need more. It stays on its nodes
// if there is room.
void Job::follow_group(Process& process) {
  const JobGroup* const group = group_of(process.role, process.model);
  process.spec = group == nullptr ? process.spec : group->spec;
  if (group == nullptr || group->demand == process.demand) {
    return;
  }
  std::vector<std::string> nodes;
  for (const PlacePart& part : process.place.parts()) {
    nodes.push_back(part.node);
  }
  give_back_place(process);
  process.demand = group->demand;
  if (nodes.size() == process.demand.parts) {
    process.place = placement_.take_on(nodes, process.demand).value_or(Place{});
  }
}

const JobGroup* Job::group_of(net::Role role, const std::string& model) const {
  const auto found = std::ranges::find_if(
      groups_, [&](const JobGroup& group) { return group.role == role && group.model == model; });
  return found == groups_.end() ? nullptr : &*found;
}

// For a node, while the job becomes ready.
bool Job::may_wait(const Process& process) const {
  const JobGroup* const group = group_of(process.role, process.model);
  if (process.state != ProcessState::kWaiting || group == nullptr) {
    return false;
  }
  const auto ready = std::ranges::count_if(processes_, [&](const Process& other) {
    return other.role == process.role && other.model == process.model &&
           other.state == ProcessState::kReady;
  });
  return static_cast<uint64_t>(ready) >= group->workers_min;
}

// Its workers have different specs. Then a crash may be the fault of one, and of no request.
bool Job::group_changes(const Process& process) const {
  const JobGroup* const group = group_of(process.role, process.model);
  return (group != nullptr && group->spec != process.spec) ||
         std::ranges::any_of(processes_, [&](const Process& other) {
           return other.role == process.role && other.model == process.model &&
                  other.spec != process.spec;
         });
}

}  // namespace pdjob::launcher
