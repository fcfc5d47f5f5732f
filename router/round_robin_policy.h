// Each worker in turn, in the order of ids, whatever their load. Pure.
#pragma once

#include "router/pair_policy.h"

namespace pdjob::router {

class RoundRobinPolicy final : public PairPolicy {
 public:
  Chosen choose(const Prompt& prompt, std::span<const Candidate> candidates,
                Random& random) const override;
  void note_sent(const Prompt& prompt, WorkerId worker) override;

 private:
  // An id rather than an index: workers come and go without shifting anybody's turn.
  WorkerId last_;
};

}  // namespace pdjob::router
