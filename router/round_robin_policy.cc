#include "router/round_robin_policy.h"

#include <algorithm>

#include "common/check.h"

namespace pdjob::router {

Chosen RoundRobinPolicy::choose(const Prompt& /*prompt*/, std::span<const Candidate> candidates,
                                Random& /*random*/) const {
  PDJOB_CHECK(!candidates.empty());
  const auto next =
      std::find_if(candidates.begin(), candidates.end(),
                   [this](const Candidate& candidate) { return candidate.id > last_; });
  return {(next == candidates.end() ? candidates.begin() : next)->id};
}

void RoundRobinPolicy::note_sent(const Prompt& /*prompt*/, WorkerId worker) { last_ = worker; }

}  // namespace pdjob::router
