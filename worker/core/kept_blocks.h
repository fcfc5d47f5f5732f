// KeptBlocks: the rows that a worker's free sequences keep (prompt_cache.h), as blocks of tokens.
// Other engines report their prefix caches in the same form (openai/kv_events/kv_events.h).
//
// Equal blocks of two tenants are two blocks. An event names the tenant as an adapter
// (openai::tenant_adapter).
// Several sequences may keep the same block. It is stored with the first of them and removed with
// the last. Changes are reported once per turn, so a block that moved between sequences within a
// turn is not reported.
// Pure.
#pragma once

#include <cstdint>
#include <map>
#include <unordered_map>
#include <vector>

#include "openai/kv_events/kv_events.h"
#include "worker/core/worker_core.h"

namespace pdjob::worker {

class KeptBlocks {
 public:
  static constexpr uint32_t kBlockTokens = 16;
  // Blocks per event; a longer chain takes several events.
  static constexpr size_t kEventBlocksMax = 4096;

  void set(SequenceId sequence, const PromptRows& kept);
  // The changes since the last call.
  std::vector<openai::KvEvent> take_changes();
  // A KvBlocksCleared, then all blocks. Requires: take_changes() has returned the latest changes.
  std::vector<openai::KvEvent> all() const;

 private:
  struct Kept {
    Prompt prompt;
    std::vector<uint64_t> hashes;  // One per whole block; covers the blocks before it.
  };
  struct Block {
    uint32_t sequences = 0;
    bool told = false;
  };
  static std::vector<uint64_t> hashes_of(const PromptRows& kept);

  std::map<SequenceId, Kept> kept_;
  std::unordered_map<uint64_t, Block> blocks_;
  std::vector<SequenceId> gained_;
  std::vector<uint64_t> lost_;
};

}  // namespace pdjob::worker
