// The messages of a Job's processes (job.h).
#include <algorithm>

#include "launcher/job/job.h"

namespace pdjob::launcher {

bool is_heartbeat(const Event& event) {
  const auto* arrived = std::get_if<MessageArrived>(&event);
  return arrived != nullptr && std::holds_alternative<net::HeartbeatSent>(arrived->message);
}

void Job::on(const MessageArrived& event, Turn& turn) {
  Process* const process = find_mutable(event.peer);
  if (process == nullptr || !process->alive() || state_ == JobState::kDone) {
    return;
  }
  supervision_.heard(*process, turn);
  if (const auto* heartbeat = std::get_if<net::HeartbeatSent>(&event.message)) {
    if (heartbeat->engine_id == process->engine_id) {
      beat(*process, *heartbeat, turn);
    } else if (has_other_role(*process, heartbeat->engine_id)) {
      runs() ? supervision_.beat_as_next(*process, turn)
             : supervision_.drain(*process, drain_deadline_, turn);
      settle(*process);
    }
  } else if (const auto* registered = std::get_if<net::Registered>(&event.message)) {
    const bool changes = runs() && has_other_role(*process, registered->worker.engine_id);
    if ((changes || process->state == ProcessState::kStarting) &&
        has_other_weights(*process, registered->worker)) {
      supervision_.kill(*process,
                        "its weights are " + registered->worker.weight_version +
                            ", and the fleet's are " + weights_.version,
                        turn);
    } else if (registered->worker.engine_id == process->engine_id) {
      supervision_.registered(*process, *registered, turn);
      compare_model(*process, turn);
      settle(*process);
    } else if (changes) {
      changed_role(*process, *registered, turn);
    }
  } else if (const auto* applied = std::get_if<net::MembershipApplied>(&event.message)) {
    membership_.applied(*process, *applied, turn);
    process->unusable = false;  // Not known until its next heartbeat: it may use new workers.
    probing_.routers_learnt();
    drain_those_known_to_leave(turn);
  } else if (const auto* spec = std::get_if<net::SpecApplied>(&event.message)) {
    process->spec = spec->engine_id == process->engine_id ? spec->digest : process->spec;
  }
}

// It does what its group should do now.
bool Job::is_current(const Process& process) const {
  const JobGroup* const group = group_of(process.role, process.model);
  return group == nullptr || group->spec == process.spec;
}

// The KV of one file means nothing to another. The workers that were there first are right. Workers
// that are to be replaced may have another file.
void Job::compare_model(Process& process, Turn& turn) {
  const std::string& digest = process.entry.model_digest;
  if (!runs() || process.state != ProcessState::kRegistered || digest.empty() ||
      !is_current(process)) {
    return;
  }
  const auto other = std::ranges::find_if(processes_, [&](const Process& one) {
    return &one != &process && one.model == process.model && one.serving() && is_current(one) &&
           !one.entry.model_digest.empty();
  });
  if (other == processes_.end() || other->entry.model_digest == digest) {
    return;
  }
  const auto told = [](const Process& one) {
    return one.name + (one.place.node.empty() ? "" : " on node " + one.place.node) +
           " has digest " + one.entry.model_digest;
  };
  const std::string why = "the nodes have different files of model " + process.entry.model + ": " +
                          told(*other) + ", " + told(process) + ". Put the same file on all nodes";
  if (state_ == JobState::kStarting) {
    fail(why, process.name, turn);
  } else {
    supervision_.kill(process, why, turn);
  }
}

// The usual one changes nothing but the time when the process was heard of and its load.
void Job::beat(Process& process, const net::HeartbeatSent& message, Turn& turn) {
  const ProcessState state = process.state;
  const bool suspected = process.suspected;
  if (!runs()) {
    process.load = message.load;
    return;
  }
  supervision_.beat(process, message, turn);
  if (process.state != state || process.suspected != suspected) {
    settle(process);
  }
  if (process.is_router()) {
    membership_.beat(process, turn);
  } else if (process.serving() && process.is_worker()) {
    membership_.report_load(process, turn);
  }
}

}  // namespace pdjob::launcher
