#include "router/policies/random_policy.h"

#include "common/check.h"

namespace pdjob::router {

Chosen RandomPolicy::choose(const PromptFacts& /*prompt*/, std::span<const Candidate> candidates,
                            Random& random) const {
  PDJOB_CHECK(!candidates.empty());
  return {candidates[random.below(candidates.size())].id};
}

}  // namespace pdjob::router
