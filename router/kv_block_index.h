// KvBlockIndex: which blocks of tokens each engine has in its prefix cache, by its own word
// (net/kv_events.h). Engines may hash differently; here a block is known by the hash of its tokens
// and all before it (token_blocks), so that those of different engines compare.
//
// What is in it is certain. A block whose beginnings nobody told is left out, and whatever follows
// a block goes with it: so an engine that has a block has all before it, and how much it has of a
// prompt is a handful of lookups (leading_blocks). Engines that evict what was used longest ago
// evict ends before beginnings, and lose nothing by this. When it is full, what is new is left out.
// Value.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "common/id.h"
#include "net/kv_events.h"

namespace pdjob::router {

class KvBlockIndex {
 public:
  // About 150 bytes each. Requires: 0 < blocks_max < 2^32 - 1.
  explicit KvBlockIndex(uint32_t blocks_max) : blocks_max_(blocks_max) {}

  void stored(WorkerId worker, const net::KvBlocksStored& event);
  void removed(WorkerId worker, const net::KvBlocksRemoved& event);
  void clear(WorkerId worker);
  // It is gone.
  void forget(WorkerId worker);

  struct Matched {
    size_t token_blocks = 0;  // From the first one on.
    bool all = false;         // But for what is left over at the end, less than a block of its.
  };
  // Of a prompt's token_blocks().
  Matched matched(std::span<const uint64_t> prompt, WorkerId worker) const;

  // What the first block of a prompt of this tenant for this model follows. Blocks of an adapter
  // are its own, and so are those of a tenant where workers keep tenants apart.
  uint64_t root_of(const std::string& model, const std::string& tenant) const;
  // Of them, those that were ever told.
  size_t adapters() const { return adapters_.size(); }

  uint32_t held(WorkerId worker) const;
  bool full() const { return size() == blocks_max_; }
  uint32_t size() const { return static_cast<uint32_t>(nodes_.size() - free_.size()); }

 private:
  static constexpr uint32_t kNone = UINT32_MAX;
  struct Node {
    uint64_t engines_key = 0;  // Of worker and engine's hash: in by_engines_hash_.
    uint64_t key = 0;          // Of worker and own hash: in by_hash_.
    uint64_t hash = 0;         // Own.
    WorkerId worker;
    uint32_t parent = kNone;
    uint32_t first_child = kNone;
    uint32_t next_sibling = kNone;
    uint32_t prior_sibling = kNone;
  };
  struct Engine {
    uint32_t first_root = kNone;
    uint32_t held = 0;
    uint32_t block_size = 0;  // 0: none was told yet.
    uint32_t group = 0;
  };

  uint32_t find_by_engines_hash(WorkerId worker, uint64_t hash) const;
  // kNone: there is no room.
  uint32_t add(WorkerId worker, Engine& engine, uint32_t parent, uint64_t engines_key,
               uint64_t hash);
  // With all that follows it.
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
