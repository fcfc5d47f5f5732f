// The groups of a job: how many workers each should have and what these should do; and the next
// steps of the Job until it is so. A person, a job file or the autoscaler decides what is good.
//
// A worker that one group can spare changes its role if the model's other group lacks one, or has
// one that waits; otherwise it retires. The worker that leaves is the one that is missed least: one
// that does not serve, else the one with the least work, else the newest. A retiring worker
// finishes its requests and waits until its KV is fetched (supervision.h), so no step loses
// anything.
//
// A worker with another spec than its group's is replaced, one of a group at a time. All others of
// the group must serve, and those that were replaced must have done so for a while. The only worker
// of a group gets a second one first, if there is room. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/time.h"
#include "launcher/job/process.h"
#include "launcher/placement/demand.h"
#include "net/control/message.h"

namespace pdjob::launcher {

class Job;

// The workers of one role of one model.
struct JobGroup {
  std::string name;  // "decode", or "small-decode" of the model that a job calls "small".
  net::Role role = net::Role::kBoth;
  std::string model;
  Demand demand{};           // Of a worker that starts, or is given this role.
  uint32_t workers_min = 0;  // The job is ready with so many of them, while the others wait.
  std::string spec = {};     // Of a worker that starts, as ProcessPlan::spec.
  uint32_t wanted = 0;       // Workers that serve.
  uint32_t most = 0;         // Workers, also while they are replaced; 0: no bound.
  uint32_t spares = 0;       // Workers more, for those that are lost.
  bool uses_store = false;   // Each of its nodes gets a store, if the job has stores.
  // Processes. A group that sleeps keeps no spare either.
  uint32_t size() const { return wanted == 0 ? 0 : wanted + spares; }
  friend bool operator==(const JobGroup&, const JobGroup&) = default;
};

struct GroupStep {
  enum class Kind { kAdd, kRetire, kStartAgain };
  Kind kind = Kind::kAdd;
  std::string process;
  const JobGroup* group = nullptr;  // That it comes to; kRetire: none.
};

// In the order in which to take them. Empty: each group is as it should be, or will be, or waits.
std::vector<GroupStep> next_steps(const std::vector<JobGroup>& groups, const Job& job, Instant now);
// A group's worker begins as a spare if the group has some. It serves while fewer than `wanted`
// others do. It is a spare again once it is silent or has ended. No worker stops serving because
// another one is back.
struct SpareChange {
  std::string process;
  bool spare = false;
};
std::vector<SpareChange> spare_changes(const std::vector<JobGroup>& groups, const Job& job);
// Whether each worker does what its group says, or will do so by the steps until now.
bool up_to_date(const std::vector<JobGroup>& groups, const Job& job);

// The workers of the group that stay in it or come to it.
std::vector<const Process*> members_of(const JobGroup& group, const Job& job);
// It has no place, or has died and waits for its next try.
bool waits(const Process& process);
// The time from which a worker counts as good: if its first requests kill it, it has died by then.
// kNever: it does not serve, or leaves.
Instant settled_at(const Process& process);

}  // namespace pdjob::launcher
