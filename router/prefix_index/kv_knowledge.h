// KvKnowledge: how much of a prompt each worker has in its prefix cache, as its engine reports
// (openai/kv_events/kv_events.h). It combines three things. The index has the tokens that engines
// hold (kv_block_index.h). The chains have the tokens of texts, learnt after a request was sent
// (token_chains.h). The third is the prompts under way, because a prompt being computed is in no
// cache yet.
//
// An engine is complete if it has reported everything since it began, and the index had room for
// it. Blocks that a complete engine did not report are absent. Other engines certainly have the
// reported blocks, and perhaps the prompts that were sent there.
//
// The data-parallel ranks of one engine have caches of their own. A request may reach any of them,
// so the engine counts as holding the mean of what they hold. Pure.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "common/id.h"
#include "openai/kv_events/kv_events.h"
#include "router/prefix_index/kv_block_index.h"
#include "router/prefix_index/token_chains.h"

namespace pdjob::router {

class KvKnowledge {
 public:
  struct Limits {
    uint32_t blocks_max = 0;  // KvBlockIndex.
    uint32_t texts_max = 0;   // TokenChains.
  };
  static constexpr uint32_t kRanksMax = 1024;  // Of one engine.

  explicit KvKnowledge(const Limits& limits)
      : index_(limits.blocks_max), chains_(limits.texts_max) {}

  // --- events of engines

  // This worker's earlier events are no longer valid. `complete`: later events describe its whole
  // cache.
  void begin(WorkerId worker, bool complete, uint32_t rank = 0);
  void take(WorkerId worker, std::span<const openai::KvEvent> events, uint32_t rank = 0);
  void forget(WorkerId worker);
  bool listens_to(WorkerId worker) const { return complete_.contains(worker); }
  bool is_complete(WorkerId worker) const;
  uint32_t held(WorkerId worker) const;
  uint32_t size() const { return index_.size(); }

  // --- tokens of texts

  // Returns true if an engine should be asked for the prompt's tokens. The caller must then call
  // learn().
  bool asks(std::span<const uint64_t> blocks, WorkerId worker);
  // See TokenChains::learn. Empty `tokens`: no engine answered.
  struct Asker {
    std::string model;
    std::string tenant;  // Empty: no tenants.
  };
  void learn(const Asker& asker, std::span<const uint64_t> blocks, size_t bytes,
             std::span<const uint32_t> tokens);

  // --- prompts under way

  void note_sent(std::span<const uint64_t> blocks, WorkerId worker);
  void note_ended(std::span<const uint64_t> blocks, WorkerId worker);
  TokenChains::Chain chain_of(std::span<const uint64_t> blocks) const {
    return chains_.chain_of(blocks);
  }
  // How many leading blocks of text the worker has. `chain`: chain_of(blocks). `sent`: how many of
  // the blocks were ever sent there.
  uint32_t matched(std::span<const uint64_t> blocks, const TokenChains::Chain& chain,
                   WorkerId worker, uint32_t sent) const;

 private:
  uint32_t ranks(WorkerId worker) const;
  KvBlockIndex::Matched matched_tokens(std::span<const uint64_t> tokens, WorkerId worker) const;
  uint32_t under_way(std::span<const uint64_t> blocks, WorkerId worker) const;

  KvBlockIndex index_;
  TokenChains chains_;
  std::map<WorkerId, std::vector<bool>> complete_;    // For each rank.
  std::unordered_set<uint64_t> asked_;                // By last block of the prompt.
  std::unordered_map<uint64_t, uint32_t> under_way_;  // Number of prompts, by block and worker.
};

}  // namespace pdjob::router
