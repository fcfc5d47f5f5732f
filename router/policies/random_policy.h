// Picks any worker, all equally likely. Pure.
#pragma once

#include "router/policies/pair_policy.h"

namespace pdjob::router {

class RandomPolicy final : public PairPolicy {
 public:
  Chosen choose(const PromptFacts& prompt, std::span<const Candidate> candidates,
                Random& random) const override;
  bool needs_all() const override { return false; }
};

}  // namespace pdjob::router
