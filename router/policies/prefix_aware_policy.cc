#include "router/policies/prefix_aware_policy.h"

#include <tuple>

#include "common/check.h"

namespace pdjob::router {

Chosen PrefixAwarePolicy::choose(const PromptFacts& prompt, std::span<const Candidate> candidates,
                                 Random& /*random*/) const {
  PDJOB_CHECK(!candidates.empty());
  const TokenChains::Chain chain =
      kv_ == nullptr ? TokenChains::Chain() : kv_->chain_of(prompt.blocks);
  Chosen best;
  auto best_rank = std::make_tuple(UINT64_MAX, UINT32_MAX);
  for (const Candidate& candidate : candidates) {
    uint64_t cached = 0;
    uint32_t matched = index_.matched(prompt.blocks, candidate.id);
    if (kv_ != nullptr) {
      matched = kv_->matched(prompt.blocks, chain, candidate.id, matched);
    }
    if (matched > 0) {
      cached = prompt.tokens * matched / prompt.blocks.size();
    }
    const uint64_t cost = candidate.load + kRecomputeWeight * (prompt.tokens - cached);
    const auto rank = std::make_tuple(cost, index_.held(candidate.id));
    if (rank < best_rank) {
      best_rank = rank;
      best = {.worker = candidate.id, .cached_tokens = cached};
    }
  }
  return best;
}

void PrefixAwarePolicy::note_sent(const PromptFacts& prompt, WorkerId worker) {
  index_.insert(prompt.blocks, worker);
  if (kv_ != nullptr) {
    kv_->note_sent(prompt.blocks, worker);
  }
}

void PrefixAwarePolicy::note_ended(const PromptFacts& prompt, WorkerId worker) {
  if (kv_ != nullptr) {
    kv_->note_ended(prompt.blocks, worker);
  }
}

}  // namespace pdjob::router
