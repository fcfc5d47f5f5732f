#include "router/policies/round_robin_policy.h"

#include <algorithm>

#include "common/check.h"
#include "common/limits.h"

namespace pdjob::router {
namespace {

// At this size, the turns of departed workers are dropped.
constexpr size_t kTurnsMax = 2 * limits::kWorkersMax;

}  // namespace

Chosen RoundRobinPolicy::choose(const PromptFacts& /*prompt*/,
                                std::span<const Candidate> candidates, Random& /*random*/) const {
  PDJOB_CHECK(!candidates.empty());
  return {std::ranges::min_element(candidates, {}, [this](const Candidate& candidate) {
            return turn_of(candidate.id);
          })->id};
}

void RoundRobinPolicy::note_sent(const PromptFacts& /*prompt*/, WorkerId worker) {
  turns_[worker] = ++turns_made_;
  if (turns_.size() > kTurnsMax) {
    turns_.erase(
        std::ranges::min_element(turns_, {}, [](const auto& turn) { return turn.second; }));
  }
}

uint64_t RoundRobinPolicy::turn_of(WorkerId worker) const {
  const auto turn = turns_.find(worker);
  return turn == turns_.end() ? 0 : turn->second;
}

}  // namespace pdjob::router
