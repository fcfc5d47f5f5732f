// KeptBlocks: what a worker's free sequences keep (prompt_cache.h), in blocks of tokens, as engines
// tell of their prefix caches (net/kv_events.h). Equal blocks of two tenants are two blocks; whose
// they are is told as the name of an adapter (net::tenant_adapter). Several sequences may keep the
// same block: it is stored with the first of them and removed with the last. Changes are told as
// they are at the end of a turn, so what went from one sequence to another in it is not told. Pure.
#pragma once

#include <cstdint>
#include <map>
#include <unordered_map>
#include <vector>

#include "net/kv_events.h"
#include "worker/worker_core.h"

namespace pdjob::worker {

class KeptBlocks {
 public:
  static constexpr uint32_t kBlockTokens = 16;
  // A longer chain is told in several events.
  static constexpr size_t kEventBlocksMax = 4096;

  void set(SequenceId sequence, const PromptRows& kept);
  // Since the last call.
  std::vector<net::KvEvent> take_changes();
  // All of it, behind a KvBlocksCleared. Requires: take_changes() has told the last ones.
  std::vector<net::KvEvent> all() const;

 private:
  struct Kept {
    Prompt prompt;
    std::vector<uint64_t> hashes;  // Of its whole blocks, each with all before it.
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
