// PrefixIndex: which worker was recently sent which prefix, and so probably still has its KV. It is
// a radix tree that is never walked. The hash of a block stands for the path to it
// (prompt_blocks.h), and each (hash, worker) is one entry of a hash table of fixed size.
//
// A full table evicts the least recently used entry. Using a prefix uses its end before its
// beginning. So a worker that has an entry has all entries before it, and the longest match takes a
// handful of lookups (leading_blocks), however long the prompt. Incarnations of workers are never
// reused, so the entries of a dead worker just age. Value.
#pragma once

#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "common/id.h"

namespace pdjob::router {

class PrefixIndex {
 public:
  // About 50 bytes for each entry. Requires: 0 < entries_max < 2^31.
  explicit PrefixIndex(uint32_t entries_max);

  // How many leading blocks the worker has.
  uint32_t matched(std::span<const uint64_t> blocks, WorkerId worker) const;
  // Records that the worker has all of these blocks.
  void insert(std::span<const uint64_t> blocks, WorkerId worker);
  // Number of blocks that this worker has.
  uint32_t held(WorkerId worker) const;
  uint32_t size() const { return static_cast<uint32_t>(entries_.size()); }

 private:
  static constexpr uint32_t kNone = UINT32_MAX;
  struct Entry {
    uint64_t key = 0;  // key_of(block, worker).
    WorkerId worker;
    uint32_t next_in_bucket = kNone;
    uint32_t newer = kNone;
    uint32_t older = kNone;
  };

  uint32_t& bucket_of(uint64_t key) { return buckets_[key & (buckets_.size() - 1)]; }
  uint32_t find(uint64_t key) const;
  void use(uint64_t key, WorkerId worker);
  // Returns a place for a new entry: a fresh one, or the oldest entry's.
  uint32_t take_place();
  void unlink_from_bucket(uint32_t place);
  void unlink_from_ages(uint32_t place);
  void make_newest(uint32_t place);

  const uint32_t entries_max_;
  std::vector<Entry> entries_;
  std::vector<uint32_t> buckets_;  // Their number is a power of two.
  uint32_t newest_ = kNone;
  uint32_t oldest_ = kNone;
  std::unordered_map<WorkerId, uint32_t> held_;
};

}  // namespace pdjob::router
