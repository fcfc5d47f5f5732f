// GroupSizes: how many workers each group of a job should have and what these should do, and the
// orders for the Job until it is so. It does not decide what is good: a person or the autoscaler
// does.
//
// A worker that one group can spare changes its role if the model's other group lacks one, or has
// one that waits; otherwise it retires. The worker that leaves is the one that is missed least: one
// that does not serve, else the one with the least work, else the newest. A retiring worker
// finishes its requests and waits until its KV is fetched (supervision.h), so no order here loses
// anything.
//
// A worker with another spec than its group's is replaced, one of a group at a time. All others of
// the group must serve, and those that were replaced must have done so for a while. The only worker
// of a group gets a second one first, if there is room. Pure.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "common/result.h"
#include "launcher/job/job.h"
#include "launcher/placement/demand.h"
#include "net/control/message.h"

namespace pdjob::launcher {

struct SizedGroup {
  std::string name;  // "decode", or "small-decode" of the model that a job calls "small".
  net::Role role = net::Role::kBoth;
  std::string model;
  Demand demand;
  uint32_t wanted = 0;
  std::string spec = {};  // Digest of what its workers do.
  uint32_t most = 0;      // Also while they are replaced; 0: no bound.
};

// Where a group stands.
struct GroupProgress {
  uint32_t wanted = 0;
  uint32_t serving = 0;
  std::string missing;  // For people: what it still waits for; empty: it has its size.
  std::string trouble;  // Why a worker does not come: it died again and again, or has no place.
};

class GroupSizes {
 public:
  struct Limits {
    uint32_t workers_per_group_max = 1;
    uint32_t workers_max = 1;  // Of all groups together.
  };

  GroupSizes(std::vector<SizedGroup> groups, Limits limits)
      : groups_(std::move(groups)), limits_(limits) {}

  const std::vector<SizedGroup>& groups() const { return groups_; }
  // Null: there is no such group.
  const SizedGroup* find(std::string_view name) const;

  // Sets sizes by name. kInvalidArgument: an unknown group, or a size that is out of bounds.
  // kUnavailable: the nodes have no room for the workers that come on top; the message says what
  // is short. After an error, no size has changed.
  Status set(const std::map<std::string, uint32_t>& wanted, const Job& job);
  // Sets one size without asking whether there is room. Requires: the group exists.
  void want(std::string_view name, uint32_t wanted);
  // Workers do what this group says from now on. Requires: the group exists.
  void change(std::string_view name, const Demand& demand, const std::string& spec);
  // Takes the sizes that an earlier launcher had recorded.
  void keep(const std::vector<std::pair<std::string, uint32_t>>& sizes);
  // Without a record, takes the sizes that a job has which an earlier launcher left. All groups may
  // be at zero. If only some are, their last worker was leaving when that launcher died: they keep
  // the size of the job file, because nothing would wake them.
  void keep(const Job& job);

  // In the order in which to submit them. Empty: each group has its size, or will have it.
  std::vector<Event> orders(const Job& job, Instant now) const;
  // Whether each worker does what its group says, or will do so by the orders until now.
  bool up_to_date(const Job& job) const;
  GroupProgress progress(const SizedGroup& group, const Job& job) const;

 private:
  Status check(const std::map<std::string, uint32_t>& wanted) const;
  std::vector<const Process*> surplus(const SizedGroup& group, const Job& job, Instant now) const;
  static void append_replacements(const SizedGroup& group, const Job& job, Instant now,
                                  std::vector<Event>& orders);

  std::vector<SizedGroup> groups_;
  Limits limits_;
};

// The workers of the group that stay in it or come to it.
std::vector<const Process*> members_of(const SizedGroup& group, const Job& job);
// It has no place, or has died and waits for its next try.
bool waits(const Process& process);
// The time from which a worker counts as good: if its first requests kill it, it has died by then.
// kNever: it does not serve, or leaves.
Instant settled_at(const Process& process);

}  // namespace pdjob::launcher
