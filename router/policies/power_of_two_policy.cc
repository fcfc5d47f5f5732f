#include "router/policies/power_of_two_policy.h"

#include <algorithm>

#include "common/check.h"

namespace pdjob::router {

Chosen PowerOfTwoPolicy::choose(const PromptFacts& /*prompt*/,
                                std::span<const Candidate> candidates, Random& random) const {
  PDJOB_CHECK(!candidates.empty());
  if (candidates.size() == 1) {
    return {candidates.front().id};
  }
  // Draws two different ones: the second draw skips the first.
  size_t low = random.below(candidates.size());
  size_t high = random.below(candidates.size() - 1);
  if (high >= low) {
    high += 1;
  } else {
    std::swap(low, high);
  }
  return {candidates[high].load < candidates[low].load ? candidates[high].id : candidates[low].id};
}

}  // namespace pdjob::router
