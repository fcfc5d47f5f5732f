// PairSuspicions: the pairs of a prefill and a decode worker between which KV was damaged again and
// again. Each may be well with others: it is the way between them that is avoided, for a while, and
// only where there is another. Pure.
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
  // Then the pair is tried again; a further report begins it anew.
  static constexpr Duration kAvoidedFor = std::chrono::seconds(30);

  struct Pair {
    WorkerId prefill;
    WorkerId decode;
    Instant until;
  };

  void note(WorkerId prefill, WorkerId decode, Instant now);
  bool avoided(WorkerId prefill, WorkerId decode, Instant now) const;
  // Workers that have left.
  void forget(const std::vector<WorkerId>& gone);
  // The hot path asks no more where there are none.
  bool empty() const { return until_.empty(); }
  std::vector<Pair> pairs(Instant now) const;

 private:
  std::map<std::pair<WorkerId, WorkerId>, Instant> until_;
};

}  // namespace pdjob::router
