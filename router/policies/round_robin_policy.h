// Picks each worker in turn, whatever its load: the one not picked for the longest time. Pure.
#pragma once

#include <cstdint>
#include <unordered_map>

#include "router/policies/pair_policy.h"

namespace pdjob::router {

class RoundRobinPolicy final : public PairPolicy {
 public:
  Chosen choose(const PromptFacts& prompt, std::span<const Candidate> candidates,
                Random& random) const override;
  void note_sent(const PromptFacts& prompt, WorkerId worker) override;

 private:
  // 0: never picked.
  uint64_t turn_of(WorkerId worker) const;

  // The turn when each worker was last picked. One cursor for all would not do, because each model
  // has its own candidates.
  std::unordered_map<WorkerId, uint64_t> turns_;
  uint64_t turns_made_ = 0;
};

}  // namespace pdjob::router
