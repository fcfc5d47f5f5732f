// Autoscaler: decides how many workers each group of a job should have, and says why. It does not
// know which workers come or go: that is the Job's.
//
// Up: at once, to what the measured model needs when a new worker would be ready, at most twice the
// workers. Where the model is wrong, a measured latency above its target asks for one more, unless
// each worker has at most one request: then the latency is a worker's own.
// Down: slowly. The largest need of the last `down_after`, with room to spare, decides; a few
// workers at a time; never while others come or go. A group that had to grow again soon after it
// shrank waits longer the next time, so that it does not flap.
// A group that lacks a worker takes one that the model's other group can spare, before a new one is
// asked for, and also if one was asked for and has no place. Groups shrink and lend although one of
// their workers waits for a place. Without requests, all workers may end; requests that wait at a
// router bring them back.
//
// Bounds, budget and ratio are kept by each decision. Pure.
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/time.h"
#include "launcher/plan/scaling_config.h"
#include "launcher/scaling/group_model.h"
#include "net/control/message.h"

namespace pdjob::launcher {

struct ScaledGroup {
  std::string name;
  net::Role role = net::Role::kBoth;
  std::string model;
  GroupScaling scaling;      // Not on(): it keeps its size, and counts for budgets and ratios.
  uint32_t gpu_percent = 0;  // Of one worker; 200: two GPUs.
};

// One group, as it is now.
struct GroupSample {
  uint32_t wanted = 0;                // Its size, as ordered.
  uint32_t coming = 0;                // Of these, those that start.
  uint32_t waiting = 0;               // Of these, those without a place, or between two tries.
  uint32_t leaving = 0;               // Not among these.
  bool by_hand = false;               // A person sets its size.
  std::string lack;                   // One of `waiting` has no place: what nodes lack.
  std::vector<WorkerSample> workers;  // Those that serve.
};
struct Observation {
  std::vector<GroupSample> groups;  // In the order of the ScaledGroups.
  uint64_t held = 0;                // Requests that wait at routers for a worker.
  uint64_t alive = 0;               // Requests at routers, those included.
};

struct Decision {
  size_t group = 0;
  uint32_t from = 0;
  uint32_t to = 0;
  std::string reason;
};

class Autoscaler {
 public:
  Autoscaler(const std::vector<ScaledGroup>& groups, const JobScalingConfig& limits);

  // Call it about twice a second. Decisions hold from now on; `wanted` of the next observation has
  // them.
  std::vector<Decision> step(const Observation& seen, Instant now);

  // Whether the group has a maximum.
  bool scales(std::string_view group) const;

 private:
  struct Group {
    ScaledGroup facts;
    GroupModel model;
    std::deque<std::pair<Instant, uint32_t>> peaks;  // Needs of the last down_after, falling.
    Instant changed{};                               // The last decision.
    Instant shrank = Instant::min();
    Instant coming_since{};
    Instant calm_since{};
    Instant short_since{};                          // Since then it has needed more than it has.
    Duration start_time = std::chrono::seconds(5);  // Of a worker, as measured.
    uint32_t patience = 1;                          // Factor of down_after.
    uint32_t to = 0;                                // This step's size.
    double need = 0;
    std::string because;
    bool stuck = false;   // Its lack is told.
    bool futile = false;  // It is told that more workers would not make it faster.
  };

  void look(Group& group, const GroupSample& sample, uint64_t held, Instant now);
  void note_peak(Group& group, uint32_t need, Instant now);
  uint32_t peak(const Group& group, Duration within, Instant now) const;
  uint32_t floor_of(const Group& group) const { return group.facts.scaling.workers_min; }
  bool settled(const Group& group, const GroupSample& sample, Duration quiet, Instant now) const;

  void grow(size_t index, const Observation& seen, Instant now);
  bool borrow(size_t index, const std::string& because, const Observation& seen, Instant now);
  void shrink(size_t index, const Observation& seen, Instant now);
  void wake_or_sleep(const Observation& seen, Instant now);
  // The most workers that bounds, budget and ratio allow this group, given the others' sizes.
  uint32_t ceiling(size_t index, std::string& why) const;
  uint32_t ratio_floor(size_t index) const;
  Group* partner_of(size_t index);
  void decide(Group& group, uint32_t to, std::string reason, Instant now);
  // It grows: if it shrank a short while ago, it waits longer the next time.
  static void regret(Group& group, Instant now);
  // The group misses a target. Returns true if more workers would have no request; tells it once.
  bool is_futile(Group& group, uint32_t there, const std::string& late);
  // Tells once that the group keeps its size though it needs more.
  void tell_stuck(Group& group, uint32_t want, const std::string& why);

  std::vector<Group> groups_;
  const JobScalingConfig limits_;
  Instant busy_at_{};  // The last time when a request was there.
  std::vector<Decision> decisions_;
};

}  // namespace pdjob::launcher
