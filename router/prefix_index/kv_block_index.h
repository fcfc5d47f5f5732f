// KvBlockIndex: the blocks of tokens in each engine's prefix cache, as reported in the engine's
// events (openai/kv_events/kv_events.h). Engines may hash differently. Here a block's key is the
// hash of its tokens and of all tokens before it (token_blocks), so blocks of different engines
// compare.
//
// Every block in the index is certain. A block with an unknown parent is left out, and removing a
// block removes all that follow it. So an engine that has a block has all blocks before it. Its
// match of a prompt takes a handful of lookups (leading_blocks).
//
// Engines that evict the least recently used blocks evict ends before beginnings, so these rules
// cost them nothing. When the index is full, new blocks are left out. Value.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "common/id.h"
#include "openai/kv_events/kv_events.h"

namespace pdjob::router {

class KvBlockIndex {
 public:
  // About 150 bytes for each block. Requires: 0 < blocks_max < 2^32 - 1.
  explicit KvBlockIndex(uint32_t blocks_max) : blocks_max_(blocks_max) {}

  void stored(WorkerId worker, const openai::KvBlocksStored& event);
  void removed(WorkerId worker, const openai::KvBlocksRemoved& event);
  void clear(WorkerId worker);
  // The worker has left.
  void forget(WorkerId worker);

  struct Matched {
    size_t token_blocks = 0;  // Leading token blocks of the prompt.
    bool all = false;         // All of the prompt's whole blocks, in the engine's block size.
  };
  // How much of a prompt the worker has. `prompt`: the prompt's token_blocks().
  Matched matched(std::span<const uint64_t> prompt, WorkerId worker) const;

  // The hash that the first block of a prompt of this tenant and model follows. An adapter has its
  // own blocks. So has a tenant, where workers keep tenants apart.
  uint64_t root_of(const std::string& model, const std::string& tenant) const;
  // Number of adapters seen in events.
  size_t adapters() const { return adapters_.size(); }

  uint32_t held(WorkerId worker) const;
  bool full() const { return size() == blocks_max_; }
  uint32_t size() const { return static_cast<uint32_t>(nodes_.size() - free_.size()); }

 private:
  static constexpr uint32_t kNone = UINT32_MAX;
  struct Node {
    uint64_t engines_key = 0;  // Of worker and engine's hash, for by_engines_hash_.
    uint64_t key = 0;          // Of worker and own hash, for by_hash_.
    uint64_t hash = 0;         // The router's own.
    WorkerId worker;
    uint32_t parent = kNone;
    uint32_t first_child = kNone;
    uint32_t next_sibling = kNone;
    uint32_t prior_sibling = kNone;
  };
  struct Engine {
    uint32_t first_root = kNone;
    uint32_t held = 0;
    uint32_t block_size = 0;  // In tokens; 0: not yet known.
    uint32_t group = 0;
  };

  uint32_t find_by_engines_hash(WorkerId worker, uint64_t hash) const;
  // Returns kNone if there is no room.
  uint32_t add(WorkerId worker, Engine& engine, uint32_t parent, uint64_t engines_key,
               uint64_t hash);
  // Erases the node and all that follow it.
  void erase(Engine& engine, uint32_t node);
  uint32_t& head_of(Engine& engine, uint32_t parent) {
    return parent == kNone ? engine.first_root : nodes_[parent].first_child;
  }

  const uint32_t blocks_max_;
  std::vector<Node> nodes_;
  std::vector<uint32_t> free_;
  std::unordered_map<uint64_t, uint32_t> by_engines_hash_;
  std::unordered_map<uint64_t, uint32_t> by_hash_;
  std::map<WorkerId, Engine> engines_;
  std::set<std::string> adapters_;
};

}  // namespace pdjob::router
