// Each worker in turn, whatever their load: who was not asked for longest is next. Pure.
#pragma once

#include <cstdint>
#include <map>

#include "router/pair_policy.h"

namespace pdjob::router {

class RoundRobinPolicy final : public PairPolicy {
 public:
  Chosen choose(const Prompt& prompt, std::span<const Candidate> candidates,
                Random& random) const override;
  void note_sent(const Prompt& prompt, WorkerId worker) override;

 private:
  // 0: never.
  uint64_t turn_of(WorkerId worker) const;

  // When each was last asked. Not one turn for all: the candidates of one model know nothing of
  // the requests for others.
  std::map<WorkerId, uint64_t> turns_;
  uint64_t turns_made_ = 0;
};

}  // namespace pdjob::router
