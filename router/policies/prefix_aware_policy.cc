#include "router/policies/prefix_aware_policy.h"

#include <algorithm>
#include <tuple>

#include "common/check.h"

namespace pdjob::router {
namespace {

// The shares of a prompt at a worker, in tokens. Loaded KV counts as there, and costs a little.
struct Share {
  uint64_t there = 0;
  uint64_t to_compute = 0;
};

Share share_of(const PromptFacts& prompt, const Candidate& candidate, uint64_t matched) {
  if (prompt.blocks.empty()) {
    return {.to_compute = prompt.tokens};
  }
  const auto tokens = [&](uint64_t blocks) {
    return prompt.tokens * blocks / prompt.blocks.size();
  };
  const uint64_t near = std::max<uint64_t>(matched, candidate.stored_near);
  const uint64_t all = std::max<uint64_t>(near, candidate.stored);
  return {.there = tokens(all),
          .to_compute = prompt.tokens - tokens(all) +
                        tokens(near - matched) * kLoadNearEighths / 8 +
                        tokens(all - near) * kLoadEighths / 8};
}

}  // namespace

Chosen PrefixAwarePolicy::choose(const PromptFacts& prompt, std::span<const Candidate> candidates,
                                 Random& /*random*/) const {
  PDJOB_CHECK(!candidates.empty());
  const TokenChains::Chain chain =
      kv_ == nullptr ? TokenChains::Chain() : kv_->chain_of(prompt.blocks);
  Chosen best;
  auto best_rank = std::make_tuple(UINT64_MAX, UINT32_MAX);
  for (const Candidate& candidate : candidates) {
    uint32_t matched = index_.matched(prompt.blocks, candidate.id);
    if (kv_ != nullptr) {
      matched = kv_->matched(prompt.blocks, chain, candidate.id, matched);
    }
    const Share share = share_of(prompt, candidate, matched);
    const uint64_t cost = candidate.load + kRecomputeWeight * share.to_compute;
    const auto rank = std::make_tuple(cost, index_.held(candidate.id));
    if (rank < best_rank) {
      best_rank = rank;
      best = {.worker = candidate.id, .cached_tokens = share.there};
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
