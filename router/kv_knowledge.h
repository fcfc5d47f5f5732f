// KvKnowledge: how much of a prompt each worker has in its prefix cache, where its engine says so
// (net/kv_events.h). Three things make it: what engines hold, in tokens (kv_block_index.h); which
// tokens a text begins with, which is learnt after the fact (token_chains.h); and which prompts are
// on their way, for what is being computed is in no cache yet.
//
// Of an engine that has told everything since it began, and for which there was room, what is not
// known to be there is not there.
// Of any other, only what it has told is certain, and what was sent there may be there, too. Pure.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "common/id.h"
#include "net/kv_events.h"
#include "router/kv_block_index.h"
#include "router/token_chains.h"

namespace pdjob::router {

class KvKnowledge {
 public:
  struct Limits {
    uint32_t blocks_max = 0;  // KvBlockIndex.
    uint32_t texts_max = 0;   // TokenChains.
  };
  explicit KvKnowledge(const Limits& limits)
      : index_(limits.blocks_max), chains_(limits.texts_max) {}

  // --- what engines say

  // What this one told before holds no longer. `complete`: what it tells from now on is all.
  void begin(WorkerId worker, bool complete);
  void take(WorkerId worker, std::span<const net::KvEvent> events);
  void forget(WorkerId worker);
  bool listens_to(WorkerId worker) const { return complete_.contains(worker); }
  bool is_complete(WorkerId worker) const;
  uint32_t held(WorkerId worker) const { return index_.held(worker); }
  uint32_t size() const { return index_.size(); }

  // --- what texts are made of

  // Should an engine be asked for the tokens of this prompt? If so, learn() is to follow.
  bool asks(std::span<const uint64_t> blocks, WorkerId worker);
  // TokenChains::learn. No tokens: nobody said.
  struct Asker {
    std::string model;
    std::string tenant;  // Empty: there are none.
  };
  void learn(const Asker& asker, std::span<const uint64_t> blocks, size_t bytes,
             std::span<const uint32_t> tokens);

  // --- where prompts are

  void note_sent(std::span<const uint64_t> blocks, WorkerId worker);
  void note_ended(std::span<const uint64_t> blocks, WorkerId worker);
  TokenChains::Chain chain_of(std::span<const uint64_t> blocks) const {
    return chains_.chain_of(blocks);
  }
  // How many blocks of text, from the first on, the worker has. `chain`: theirs; `sent`: how many
  // were sent there, some time ago perhaps.
  uint32_t matched(std::span<const uint64_t> blocks, const TokenChains::Chain& chain,
                   WorkerId worker, uint32_t sent) const;

 private:
  uint32_t under_way(std::span<const uint64_t> blocks, WorkerId worker) const;

  KvBlockIndex index_;
  TokenChains chains_;
  std::map<WorkerId, bool> complete_;
  std::unordered_set<uint64_t> asked_;                // Last blocks of prompts.
  std::unordered_map<uint64_t, uint32_t> under_way_;  // Prompts by block and worker.
};

}  // namespace pdjob::router
