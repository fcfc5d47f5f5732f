#include "router/round_robin_policy.h"

#include <algorithm>

#include "common/check.h"

namespace pdjob::router {

Chosen RoundRobinPolicy::choose(const Prompt& /*prompt*/, std::span<const Candidate> candidates,
                                Random& /*random*/) {
  PDJOB_CHECK(!candidates.empty());
  const auto next =
      std::find_if(candidates.begin(), candidates.end(),
                   [this](const Candidate& candidate) { return candidate.id > last_; });
  last_ = (next == candidates.end() ? candidates.begin() : next)->id;
  return {last_};
}

}  // namespace pdjob::router
