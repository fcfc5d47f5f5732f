// PairSuspicions: pairs of a prefill and a decode worker between which KV was damaged repeatedly.
// Each worker may be fine with other partners. The router avoids the pair for a while, if there is
// another one. Pure.
#pragma once

#include <cstddef>
#include <map>
#include <utility>
#include <vector>

#include "common/id.h"
#include "common/time.h"

namespace pdjob::router {

class PairSuspicions {
 public:
  // Afterwards the pair is tried again; a new report restarts the time.
  static constexpr Duration kAvoidedFor = std::chrono::seconds(30);

  struct Pair {
    WorkerId prefill;
    WorkerId decode;
    Instant until;
  };

  void note(WorkerId prefill, WorkerId decode, Instant now);
  bool avoided(WorkerId prefill, WorkerId decode, Instant now) const;
  // Forgets pairs of workers that have left.
  void forget(const std::vector<WorkerId>& gone);
  // Lets the hot path skip further checks.
  bool empty() const { return until_.empty(); }
  std::vector<Pair> pairs(Instant now) const;

 private:
  std::map<std::pair<WorkerId, WorkerId>, Instant> until_;
};

}  // namespace pdjob::router
