#include "router/least_loaded_policy.h"

#include <algorithm>

#include "common/check.h"

namespace pdjob::router {

Chosen LeastLoadedPolicy::choose(const Prompt& /*prompt*/, std::span<const Candidate> candidates,
                                 Random& /*random*/) const {
  PDJOB_CHECK(!candidates.empty());
  // The first of the smallest, hence the lowest id.
  return {std::min_element(candidates.begin(), candidates.end(),
                           [](const Candidate& a, const Candidate& b) { return a.load < b.load; })
              ->id};
}

}  // namespace pdjob::router
