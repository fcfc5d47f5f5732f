// Where a prompt costs least: the tokens that wait at a worker already, and kRecomputeWeight times
// the tokens of the prompt that it would have to compute. So a long match is worth a wait, and a
// short one is not. Equals go to the worker that holds the fewest prefixes. What a worker holds is
// what was sent to it, or what its engine says (kv_knowledge.h). Pure.
#pragma once

#include "router/pair_policy.h"
#include "router/prefix_index.h"

namespace pdjob::router {

// With 1, each prompt gets its own first token soonest, and the workers compute 13 % of what they
// could have found once more: everybody waits for that later. With 4, 4 % (docs/performance.md).
inline constexpr uint64_t kRecomputeWeight = 4;

class PrefixAwarePolicy final : public PairPolicy {
 public:
  explicit PrefixAwarePolicy(uint32_t entries_max, KvKnowledge* kv = nullptr)
      : index_(entries_max), kv_(kv) {}
  Chosen choose(const Prompt& prompt, std::span<const Candidate> candidates,
                Random& random) const override;
  void note_sent(const Prompt& prompt, WorkerId worker) override;
  void note_ended(const Prompt& prompt, WorkerId worker) override;
  bool wants_blocks() const override { return true; }

 private:
  PrefixIndex index_;
  KvKnowledge* const kv_;  // May be null.
};

}  // namespace pdjob::router
