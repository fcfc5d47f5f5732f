// Picks the worker with the lowest cost for a prompt: the tokens that already wait there, plus
// kRecomputeWeight times the prompt tokens that it must compute; to load them from a store is a
// part of that. So a long match is worth a wait, and a short one is not. A tie goes to the worker
// that holds the fewest prefixes. A worker holds the prompts that were sent to it, or what its
// engine reports (kv_knowledge.h). Pure.
#pragma once

#include "router/policies/pair_policy.h"
#include "router/prefix_index/prefix_index.h"

namespace pdjob::router {

// With 1, each prompt gets its own first token soonest. But the workers recompute 13 % of what they
// could have found, and everybody waits for that later. With 4, it is 4 % (docs/performance.md).
inline constexpr uint64_t kRecomputeWeight = 4;
// The cost of loading KV from a store, in eighths of computing it: from one on the same machine,
// and from one elsewhere. On CPUs both took 0.04 at most (docs/measurements/kv-store.md). GPUs
// compute faster, and networks are shared, so they count for more.
inline constexpr uint64_t kLoadNearEighths = 1;
inline constexpr uint64_t kLoadEighths = 3;

class PrefixAwarePolicy final : public PairPolicy {
 public:
  explicit PrefixAwarePolicy(uint32_t entries_max, KvKnowledge* kv = nullptr)
      : index_(entries_max), kv_(kv) {}
  Chosen choose(const PromptFacts& prompt, std::span<const Candidate> candidates,
                Random& random) const override;
  void note_sent(const PromptFacts& prompt, WorkerId worker) override;
  void note_ended(const PromptFacts& prompt, WorkerId worker) override;
  bool wants_blocks() const override { return true; }

 private:
  PrefixIndex index_;
  KvKnowledge* const kv_;  // May be null.
};

}  // namespace pdjob::router
