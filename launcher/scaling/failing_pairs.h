// FailingPairs: finds the worker to replace for pairs that go on failing. Routers tell of a prefill
// and a decode worker whose hand-overs fail for long. Other pairs did the same requests well, so
// one of the two holds something that is wrong only for the other: often about the one that was at
// the other's place before (vllm#49238).
//
// The one that fails with more partners is replaced, else the older one: the younger one started
// after whatever went wrong. If the pair fails still, the other one has become the older one. The
// only worker of a group stays, so that the group goes on serving; its partner goes, and comes back
// with new ports. Pure.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "common/time.h"
#include "launcher/job/process.h"
#include "launcher/scaling/replacement_pace.h"

namespace pdjob::launcher {

struct PairMember {
  std::string name;
  std::string engine_id;
  Incarnation incarnation;  // Grows with each start of the job.
  std::string group;
  bool group_whole = false;  // No worker of its group comes, leaves or is away.
  bool has_peer = false;     // Another worker of its group serves.
};
struct FailingPair {
  PairMember prefill;
  PairMember decode;
  std::string why;  // For people.
};

struct FailingWorker {
  std::string name;
  std::string reason;  // For people.
};

class FailingPairs {
 public:
  // A router may not know yet that one of the two has a successor.
  static constexpr Duration kToldFor = std::chrono::seconds(2);

  // Takes all pairs that routers tell of, about twice a second. Returns the workers to replace now.
  std::vector<FailingWorker> step(const std::vector<FailingPair>& pairs, ReplacementPace& pace,
                                  Instant now);

 private:
  std::map<std::pair<std::string, std::string>, Instant> told_;  // By engine ids.
};

}  // namespace pdjob::launcher
