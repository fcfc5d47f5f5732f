// Stragglers: finds workers that compute clearly slower than their peers, for long. A peer has the
// same model, role and kind of node. Each worker is compared with each peer, by the steps of the
// same seconds.
//
// The time of a step grows with the step itself, its tokens, the KV rows that they read, and its
// outputs. What each of them costs is unknown, but none costs less than nothing. So a worker is at
// least as many times slower than a peer as its time exceeds the peer's by all of these measures,
// each taken alone. Another mix of work makes a worker look faster than it is, but never slower.
//
// A worker is slow if it is slower than more than half of its group, itself included. So two
// workers judge nothing, and where half of a group is slow, nobody is.
//
// A slow worker is replaced, one at a time in a group, and as the group's pace allows. If its
// successor on the same node is slow, too, the node is to blame: it is replaced only if another
// node has room. Only pdjob's own engine reports steps, so only its workers are judged. Pure.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "common/time.h"
#include "launcher/plan/scaling_config.h"
#include "launcher/scaling/replacement_pace.h"
#include "net/control/message.h"

namespace pdjob::launcher {

struct PeerSample {
  std::string name;
  std::string engine_id;
  std::string node;
  std::string kind;  // Of its node, and of what else makes workers of a group unequal.
  net::StepTotals steps;
};
// The serving workers of one group.
struct PeerGroup {
  std::string name;
  bool whole = false;  // No worker of it comes, leaves or is away.
  std::vector<PeerSample> workers;
};

struct SlowWorker {
  std::string name;
  std::string node;
  double slowness = 0;  // It takes at least so many times longer than most of its group.
  bool replace = false;
  std::string reason;  // For people.
};

// For the next launcher, so that launchers that die cause no further replacements. Value.
struct StragglerRecord {
  struct Replaced {
    std::string worker;
    std::string node;
    Instant at{};
    friend bool operator==(const Replaced&, const Replaced&) = default;
  };
  std::vector<GroupWait> groups;
  std::vector<Replaced> replaced;
  friend bool operator==(const StragglerRecord&, const StragglerRecord&) = default;
};

// At least so many times longer the work of `one` took than that of `other` would have taken there.
// 0: nothing can be said.
double slowness_between(const net::StepTotals& one, const net::StepTotals& other);

class Stragglers {
 public:
  // Goes on with the record of an earlier launcher, whatever is in it.
  explicit Stragglers(const StragglerConfig& config, const StragglerRecord& record = {});

  // Whether step() has something to compare. Call both about twice a second while the job is ready.
  bool due(Instant now) const { return config_.on() && now >= due_; }
  // Whether a node that is not trusted less than that of this worker has room for it.
  using HasRoomElsewhere = std::function<bool(const std::string& worker)>;
  // Takes all groups. Returns the workers to replace now, and, once in a while, those that are slow
  // and stay.
  std::vector<SlowWorker> step(const std::vector<PeerGroup>& groups, Instant now,
                               const HasRoomElsewhere& has_room_elsewhere);

  // By the last comparison: at least so many times slower than most of its group. 0: unknown.
  double slowness(std::string_view name) const;
  // It counts replacements for any reason.
  ReplacementPace& pace() { return pace_; }
  // It changes only when step() returns something, or the pace changes.
  StragglerRecord record() const;

 private:
  struct Worker {
    std::string engine_id;
    net::StepTotals begin;  // Of the slice.
    double slowness = 0;
    uint32_t slow = 0;     // Slices in a row, leaving out those that say nothing.
    uint32_t unknown = 0;  // Slices in a row.
  };
  struct Replaced {
    std::string node;
    Instant at{};
  };

  void judge(const PeerGroup& group);
  // Null: nobody is to be replaced now.
  const PeerSample* slowest(const PeerGroup& group) const;
  SlowWorker decide(const PeerSample& worker, Instant now,
                    const HasRoomElsewhere& has_room_elsewhere);

  const StragglerConfig config_;
  const Duration slice_;
  Instant due_{};  // The end of this slice.
  std::map<std::string, Worker, std::less<>> workers_;
  ReplacementPace pace_;
  std::map<std::string, Replaced> replaced_;  // Workers, by name.
};

}  // namespace pdjob::launcher
