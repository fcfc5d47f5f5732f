// SimRay: a home cluster of Ray, and its guests, as ray_shim.py sees them. Placement groups wait
// for room, are placed together or not at all, and move when a node is lost. A guest's job is a
// node of the home, which serves one slot. A keeper frees what nobody renews, and nodes that join
// without a keeper leave again.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "launcher/ray/shim_line.h"
#include "launcher/simulator/sim_loop.h"
#include "tests/simulation/invariants.h"

namespace pdjob::simulation {

class SimRay {
 public:
  using Slot = std::pair<std::string, std::string>;  // Of a job.
  struct Group {
    std::string job;
    std::vector<launcher::RayBundle> bundles;
    std::vector<std::string> nodes;  // By bundle; empty: it waits.
    bool placed = false;             // All bundles had their nodes once.
    uint64_t number = 0;             // Older groups are placed first.
  };
  struct GuestJob {
    Slot slot;
    std::string cluster;
    std::string node;  // Empty: it waits for room.
  };
  using GroupKey = std::pair<std::string, std::string>;  // Job and name.

  SimRay(SimLoop& loop, Invariants& invariants) : loop_(loop), invariants_(invariants) {}

  // Called after each change: agents look whether their place is still there.
  std::function<void()> changed = [] {};

  // --- what the shim does
  void reserve(const GroupKey& key, std::vector<launcher::RayBundle> bundles);
  void remove(const GroupKey& key);
  void submit(const std::string& submission, const GuestJob& job);
  void stop(const std::string& submission);
  void find_keeper(const std::string& job, Duration lease);  // Makes one if there is none.
  // Without effect once the lease has ended: the keeper is about to end, too.
  void renew(const std::string& job, Duration lease);
  bool has_keeper(const std::string& job) const { return keepers_.contains(job); }
  void free_everything(const std::string& job);
  void expire(const std::string& job, Duration soon);  // Its keeper waits only so long.
  void look_at_leases();
  void keep();  // Keepers and watchers of nodes do their work: needs the home's control store.

  // --- what happens to it
  void set_home(const std::string& node, uint32_t cpus);  // 0: it is lost.
  void set_room(const std::string& guest, uint32_t rooms);
  void lose_guest_node(uint64_t target);

  const std::map<GroupKey, Group>& groups() const { return groups_; }
  const std::map<std::string, GuestJob>& jobs() const { return jobs_; }
  // The nodes that this job is told: the home's and its own.
  std::map<std::string, std::string> nodes_for(const std::string& job) const;
  bool was_granted(const std::string& job) const { return granted_.contains(job); }
  std::string holds(const std::string& job) const;  // In words; empty: nothing.
  bool has_home_room() const;
  bool has_room(const std::string& guest) const;

 private:
  void schedule();
  bool place(Group& group);
  std::string find_node(const Group& group, size_t bundle, std::map<std::string, uint32_t>& used,
                        const std::set<std::string>& taken) const;
  std::map<std::string, uint32_t> used() const;

  SimLoop& loop_;
  Invariants& invariants_;
  std::map<std::string, uint32_t> home_;   // CPUs by node.
  std::map<std::string, uint32_t> rooms_;  // By guest.
  std::map<GroupKey, Group> groups_;
  std::map<std::string, GuestJob> jobs_;  // Those that have not ended, by submission.
  struct Keeper {
    Instant due;
    bool ended = false;  // The lease.
  };
  std::map<std::string, Keeper> keepers_;
  std::set<std::string> granted_;  // Jobs that had a reservation.
  uint64_t made_ = 0;
};

}  // namespace pdjob::simulation
