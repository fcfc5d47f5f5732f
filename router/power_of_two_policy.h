// The less loaded of two workers drawn at random (Mitzenmacher, 2001): nearly as even as the least
// loaded, and several routers with the same stale news do not all run to the same worker. Pure.
#pragma once

#include "router/pair_policy.h"

namespace pdjob::router {

class PowerOfTwoPolicy final : public PairPolicy {
 public:
  Chosen choose(const Prompt& prompt, std::span<const Candidate> candidates,
                Random& random) const override;
};

}  // namespace pdjob::router
