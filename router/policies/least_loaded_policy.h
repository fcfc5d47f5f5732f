// The worker with the least load. Best with one router: several routers with the same reports would
// all pick the same worker. Pure.
#pragma once

#include "router/policies/pair_policy.h"

namespace pdjob::router {

class LeastLoadedPolicy final : public PairPolicy {
 public:
  Chosen choose(const PromptFacts& prompt, std::span<const Candidate> candidates,
                Random& random) const override;
  bool needs_all() const override { return false; }
};

}  // namespace pdjob::router
