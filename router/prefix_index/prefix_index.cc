#include "router/prefix_index/prefix_index.h"

#include <algorithm>
#include <bit>

#include "common/check.h"
#include "router/prefix_index/prompt_blocks.h"

namespace pdjob::router {
PrefixIndex::PrefixIndex(uint32_t entries_max)
    : entries_max_(entries_max), buckets_(std::bit_ceil(entries_max), kNone) {
  PDJOB_CHECK(entries_max > 0 && entries_max < uint32_t{1} << 31, entries_max);
}

uint32_t PrefixIndex::matched(std::span<const uint64_t> blocks, WorkerId worker) const {
  return static_cast<uint32_t>(leading_blocks(
      blocks.size(), [&](size_t block) { return find(key_of(blocks[block], worker)) != kNone; }));
}

void PrefixIndex::insert(std::span<const uint64_t> blocks, WorkerId worker) {
  blocks = blocks.first(std::min<size_t>(blocks.size(), entries_max_));
  std::for_each(blocks.rbegin(), blocks.rend(),
                [&](uint64_t block) { use(key_of(block, worker), worker); });
}

uint32_t PrefixIndex::held(WorkerId worker) const {
  const auto found = held_.find(worker);
  return found == held_.end() ? 0 : found->second;
}

uint32_t PrefixIndex::find(uint64_t key) const {
  uint32_t place = buckets_[key & (buckets_.size() - 1)];
  while (place != kNone && entries_[place].key != key) {
    place = entries_[place].next_in_bucket;
  }
  return place;
}

void PrefixIndex::use(uint64_t key, WorkerId worker) {
  uint32_t place = find(key);
  if (place == kNone) {
    place = take_place();
    uint32_t& bucket = bucket_of(key);
    entries_[place] = {.key = key, .worker = worker, .next_in_bucket = bucket};
    bucket = place;
    held_[worker] += 1;
  } else {
    unlink_from_ages(place);
  }
  make_newest(place);
}

uint32_t PrefixIndex::take_place() {
  if (entries_.size() < entries_max_) {
    entries_.emplace_back();
    return static_cast<uint32_t>(entries_.size() - 1);
  }
  const uint32_t place = oldest_;
  const auto held = held_.find(entries_[place].worker);
  if (--held->second == 0) {
    held_.erase(held);
  }
  unlink_from_ages(place);
  unlink_from_bucket(place);
  return place;
}

void PrefixIndex::unlink_from_bucket(uint32_t place) {
  uint32_t* at = &bucket_of(entries_[place].key);
  while (*at != place) {
    at = &entries_[*at].next_in_bucket;
  }
  *at = entries_[place].next_in_bucket;
}

void PrefixIndex::unlink_from_ages(uint32_t place) {
  const Entry& entry = entries_[place];
  (entry.newer == kNone ? newest_ : entries_[entry.newer].older) = entry.older;
  (entry.older == kNone ? oldest_ : entries_[entry.older].newer) = entry.newer;
}

void PrefixIndex::make_newest(uint32_t place) {
  entries_[place].newer = kNone;
  entries_[place].older = newest_;
  (newest_ == kNone ? oldest_ : entries_[newest_].newer) = place;
  newest_ = place;
}

}  // namespace pdjob::router
