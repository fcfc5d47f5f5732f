#include "launcher/scaling/job_change.h"

#include <algorithm>

#include "net/control/kv_fingerprint.h"

namespace pdjob::launcher {

namespace {

constexpr uint32_t kDeathsMax = 2;
constexpr Duration kPlaceWithin = std::chrono::seconds(30);
constexpr Duration kProvedWithin = std::chrono::minutes(2);

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

Instant JobChange::proved_by(const Process& process, const Job& job) {
  Instant by = kNever;
  for (const Process& other : job.processes()) {
    const bool partner = other.is_worker() && other.model == process.model &&
                         other.role != process.role &&
                         net::same_kv(other.entry.fingerprint, process.entry.fingerprint);
    if (partner && process.state == ProcessState::kRegistered &&
        other.state == ProcessState::kRegistered) {
      by = std::min(by, std::max(process.since, other.since) + kProvedWithin);
    }
  }
  return by;
}

std::vector<const Process*> JobChange::outdated_routers(const Job& job) const {
  std::vector<const Process*> outdated;
  for (const Process& process : job.processes()) {
    if (process.is_router() && process.serving() && process.spec != router_spec_) {
      outdated.push_back(&process);
    }
  }
  return outdated;
}

void JobChange::look(const Job& job, Instant now) {
  if (state_ != State::kUnderWay) {
    return;
  }
  bool settled = job.state() == JobState::kReady && outdated_routers(job).empty();
  due_ = kNever;
  for (const JobGroup& group : job.groups()) {
    const std::vector<const Process*> members = members_of(group, job);
    settled = settled && members.size() == group.size();
    for (const Process* process : members) {
      const Instant proved = process->spec == group.spec ? proved_by(*process, job) : kNever;
      const std::string fault = now >= proved
                                    ? process->name + " is not ready: no probe goes through it"
                                    : fault_of(group, *process, now);
      if (!fault.empty() && kind_ == Kind::kForward) {
        state_ = State::kFailed;
        why_ = fault;
        return;
      }
      settled = settled && process->spec == group.spec && now >= settled_at(*process);
      const Instant settles = process->state == ProcessState::kWaiting
                                  ? process->since + kPlaceWithin
                                  : settled_at(*process);
      for (const Instant next : {settles, proved}) {
        due_ = next > now ? std::min(due_, next) : due_;
      }
    }
  }
  state_ = settled ? State::kDone : state_;
}

}  // namespace pdjob::launcher
