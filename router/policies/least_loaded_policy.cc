#include "router/policies/least_loaded_policy.h"

#include <algorithm>

#include "common/check.h"

namespace pdjob::router {

Chosen LeastLoadedPolicy::choose(const PromptFacts& /*prompt*/,
                                 std::span<const Candidate> candidates, Random& /*random*/) const {
  PDJOB_CHECK(!candidates.empty());
  // min_element returns the first minimum, so the lowest id wins.
  return {std::min_element(candidates.begin(), candidates.end(),
                           [](const Candidate& a, const Candidate& b) { return a.load < b.load; })
              ->id};
}

}  // namespace pdjob::router
