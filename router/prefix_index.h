// PrefixIndex: which worker has lately been sent which prefix, and so probably still has its KV. A
// radix tree that is never walked: the hash of a block stands for the path to it (prompt_blocks.h),
// and (hash, worker) is one entry of a hash table of fixed size.
//
// The entry that was used longest ago makes room. Using a prefix uses its end before its beginning,
// so a worker that has an entry has all before it, too, and the longest match is a handful of
// lookups (leading_blocks), however long the prompt. Incarnations of workers are never reused, so
// the entries of a dead one only age. Value.
#pragma once

#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "common/id.h"

namespace pdjob::router {

class PrefixIndex {
 public:
  // About 50 bytes each. Requires: 0 < entries_max < 2^31.
  explicit PrefixIndex(uint32_t entries_max);

  // How many of the blocks, from the first on, the worker has.
  uint32_t matched(std::span<const uint64_t> blocks, WorkerId worker) const;
  // The worker has all of them from now on.
  void insert(std::span<const uint64_t> blocks, WorkerId worker);
  // Blocks of this worker.
  uint32_t held(WorkerId worker) const;
  uint32_t size() const { return static_cast<uint32_t>(entries_.size()); }

 private:
  static constexpr uint32_t kNone = UINT32_MAX;
  struct Entry {
    uint64_t key = 0;  // Of block and worker.
    WorkerId worker;
    uint32_t next_in_bucket = kNone;
    uint32_t newer = kNone;
    uint32_t older = kNone;
  };

  uint32_t& bucket_of(uint64_t key) { return buckets_[key & (buckets_.size() - 1)]; }
  uint32_t find(uint64_t key) const;
  void use(uint64_t key, WorkerId worker);
  // A place for a new entry: a fresh one, or that of the oldest.
  uint32_t take_place();
  void unlink_from_bucket(uint32_t place);
  void unlink_from_ages(uint32_t place);
  void make_newest(uint32_t place);

  const uint32_t entries_max_;
  std::vector<Entry> entries_;
  std::vector<uint32_t> buckets_;  // A power of two of them.
  uint32_t newest_ = kNone;
  uint32_t oldest_ = kNone;
  std::unordered_map<WorkerId, uint32_t> held_;
};

}  // namespace pdjob::router
