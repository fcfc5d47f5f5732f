#include "router/policies/consistent_hash_policy.h"

#include <algorithm>

#include "common/check.h"

namespace pdjob::router {

Chosen ConsistentHashPolicy::choose(const PromptFacts& prompt,
                                    std::span<const Candidate> candidates, Random& random) const {
  PDJOB_CHECK(!candidates.empty());
  if (prompt.session == 0) {
    return without_session_.choose(prompt, candidates, random);
  }
  const auto score = [&](const Candidate& candidate) {
    return mix(prompt.session ^ candidate.name_hash);
  };
  return {
      std::max_element(candidates.begin(), candidates.end(),
                       [&](const Candidate& a, const Candidate& b) { return score(a) < score(b); })
          ->id};
}

}  // namespace pdjob::router
