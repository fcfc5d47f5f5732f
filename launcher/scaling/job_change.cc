#include "launcher/scaling/job_change.h"

#include <algorithm>

namespace pdjob::launcher {

namespace {

constexpr uint32_t kDeathsMax = 2;
constexpr Duration kPlaceWithin = std::chrono::seconds(30);

}  // namespace

std::string JobChange::fault_of(const JobGroup& group, const Process& process, Instant now) {
  if (process.spec != group.spec) {
    return "";
  }
  if (process.state == ProcessState::kBackoff &&
      process.restart_policy.deaths_in_a_row() >= kDeathsMax) {
    return process.name + " died " + std::to_string(process.restart_policy.deaths_in_a_row()) +
           " times: " + process.last_exit;
  }
  if (process.state == ProcessState::kWaiting && now >= process.since + kPlaceWithin) {
    return process.name + " finds no place";
  }
  return "";
}

void JobChange::look(const Job& job, Instant now) {
  if (state_ != State::kUnderWay) {
    return;
  }
  bool settled = job.state() == JobState::kReady;
  due_ = kNever;
  for (const JobGroup& group : job.groups()) {
    const std::vector<const Process*> members = members_of(group, job);
    settled = settled && members.size() == group.wanted;
    for (const Process* process : members) {
      const std::string fault = fault_of(group, *process, now);
      if (!fault.empty() && kind_ == Kind::kForward) {
        state_ = State::kFailed;
        why_ = fault;
        return;
      }
      settled = settled && process->spec == group.spec && now >= settled_at(*process);
      const Instant next = process->state == ProcessState::kWaiting ? process->since + kPlaceWithin
                                                                    : settled_at(*process);
      due_ = next > now ? std::min(due_, next) : due_;
    }
  }
  state_ = settled ? State::kDone : state_;
}

}  // namespace pdjob::launcher
