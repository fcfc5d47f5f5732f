// The less loaded of two random workers (Mitzenmacher, 2001). The load is nearly as even as with
// the least loaded worker. Several routers with the same stale reports do not all pick the same
// worker. Pure.
#pragma once

#include "router/policies/pair_policy.h"

namespace pdjob::router {

class PowerOfTwoPolicy final : public PairPolicy {
 public:
  Chosen choose(const PromptFacts& prompt, std::span<const Candidate> candidates,
                Random& random) const override;
  bool needs_all() const override { return false; }
};

}  // namespace pdjob::router
