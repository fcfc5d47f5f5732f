#include "store/block_index.h"

#include <algorithm>
#include <limits>

#include "common/check.h"

namespace pdjob::store {
namespace {

// The cost of a block: as many units for the weights' part of each token, and one more for each
// block before it, for attention. In common models both are equal near token 16384.
constexpr uint64_t kCostOfWeights = 256;
constexpr uint32_t kUsesMax = 16;  // A block that was popular once leaves in bounded time.

}  // namespace

void BlockIndex::add_shape(uint64_t bytes) {
  slots_.add_shape(bytes);
  evictable_.emplace_back();
}

// --- blocks that come

std::optional<SlotId> BlockIndex::reserve(const Block& block) {
  if (!fits_its_successors(block)) {
    return std::nullopt;
  }
  add_successor(block);  // First, so that the block before it is not evicted for it.
  const auto slot = make_room(block.shape);
  if (slot) {
    coming_.emplace(*slot, block);
  } else {
    remove_successor(block.parent);
  }
  return slot;
}

bool BlockIndex::restore(const Block& block, SlotId slot, uint64_t digest) {
  if (by_name_.contains(block.name) || !fits_its_successors(block) ||
      !slots_.take_at(block.shape, slot)) {
    return false;
  }
  add_successor(block);
  ++slab_use_[slot.slab].moving;
  coming_.emplace(slot, block);
  keep(slot, digest);
  return true;
}

// Its successors of earlier, which lost it, may have come at another place.
bool BlockIndex::fits_its_successors(const Block& block) const {
  const auto own = successors_.find(block.name);
  return own == successors_.end() || own->second.depth == block.depth + 1;
}

void BlockIndex::keep(SlotId slot, uint64_t digest) {
  const auto come = coming_.extract(slot);
  PDJOB_CHECK(!come.empty(), slot.slab, slot.index);
  --slab_use_[slot.slab].moving;
  Kept& kept = kept_[slot];
  kept = {.block = come.mapped(), .digest = digest};
  by_name_.emplace(kept.block.name, slot);
  rate(kept, slot);
  list(kept, slot);
}

void BlockIndex::abandon(SlotId slot) {
  const auto lost = coming_.extract(slot);
  PDJOB_CHECK(!lost.empty(), slot.slab, slot.index);
  remove_successor(lost.mapped().parent);
}

void BlockIndex::release(SlotId slot) {
  --slab_use_[slot.slab].moving;
  slots_.give(slot);
}

// --- blocks that are here

std::optional<SlotId> BlockIndex::find(BlockName name) const {
  const auto found = by_name_.find(name);
  return found == by_name_.end() ? std::nullopt : std::optional(found->second);
}

void BlockIndex::pin(SlotId slot) {
  Kept& kept = kept_.at(slot);
  unlist(kept, slot);
  ++kept.pins;
  ++slab_use_[slot.slab].moving;
}

void BlockIndex::unpin(SlotId slot) {
  Kept& kept = kept_.at(slot);
  PDJOB_CHECK(kept.pins > 0, slot.slab, slot.index);
  --kept.pins;
  --slab_use_[slot.slab].moving;
  if (!kept.dropped) {
    list(kept, slot);
  } else if (kept.pins == 0) {
    kept_.erase(slot);
    slots_.give(slot);
  }
}

void BlockIndex::count_use(SlotId slot) {
  Kept& kept = kept_.at(slot);
  unlist(kept, slot);
  kept.uses = std::min(kept.uses + 1, kUsesMax);
  rate(kept, slot);
  list(kept, slot);
}

void BlockIndex::drop(SlotId slot) {
  Kept& kept = kept_.at(slot);
  if (kept.dropped) {
    return;
  }
  unlist(kept, slot);
  by_name_.erase(kept.block.name);
  remove_successor(kept.block.parent);
  kept.dropped = true;
  if (kept.pins == 0) {
    kept_.erase(slot);
    slots_.give(slot);
  }
}

// --- eviction

std::optional<SlotId> BlockIndex::take_slot(ShapeId shape) {
  const auto slot = slots_.take(shape);
  if (slot) {
    SlabUse& use = slab_use_[slot->slab];
    ++use.moving;
    use.priority_max = slots_.taken(slot->slab) == 1 ? 0 : use.priority_max;
  }
  return slot;
}

std::optional<SlotId> BlockIndex::make_room(ShapeId shape) {
  if (!slots_.fits(shape)) {
    return std::nullopt;
  }
  if (const auto free = take_slot(shape)) {
    return free;
  }
  const auto& own = evictable_[shape.value];
  const uint64_t least = own.empty() ? std::numeric_limits<uint64_t>::max() : own.begin()->first;
  if (const auto slab = least_slab_of_others(shape, least)) {
    while (true) {
      const auto next = kept_.lower_bound({.slab = *slab, .index = 0});
      if (next == kept_.end() || next->first.slab != *slab) {
        break;
      }
      evict(next->first);
    }
  } else if (!own.empty()) {
    evict(own.begin()->second);
  }
  return take_slot(shape);
}

// Returns the slab of another shape with the lowest priority_max, if it is below `below`.
std::optional<uint32_t> BlockIndex::least_slab_of_others(ShapeId shape, uint64_t below) const {
  std::optional<uint32_t> least;
  for (uint32_t slab = 0; slab < slots_.slabs(); ++slab) {
    const SlabUse& use = slab_use_[slab];
    if (slots_.owner(slab) != shape && use.moving == 0 && use.priority_max < below) {
      below = use.priority_max;
      least = slab;
    }
  }
  return least;
}

void BlockIndex::evict(SlotId slot) {
  const Kept& kept = kept_.at(slot);
  PDJOB_CHECK(kept.pins == 0 && !kept.dropped, slot.slab, slot.index);
  clock_ = std::max(clock_, kept.priority);
  ++evicted_;
  drop(slot);
}

void BlockIndex::add_successor(const Block& block) {
  if (!block.parent) {
    return;
  }
  Successors& of = successors_[*block.parent];
  of.depth = block.depth;
  ++of.count;
  if (const auto here = find(*block.parent)) {
    unlist(kept_.at(*here), *here);
  }
}

void BlockIndex::remove_successor(const std::optional<BlockName>& parent) {
  const auto of = parent ? successors_.find(*parent) : successors_.end();
  if (of == successors_.end() || --of->second.count > 0) {
    return;
  }
  successors_.erase(of);
  if (const auto here = find(*parent)) {
    list(kept_.at(*here), *here);
  }
}

void BlockIndex::unlist(const Kept& kept, SlotId slot) {
  evictable_[kept.block.shape.value].erase({kept.priority, slot});
}

void BlockIndex::list(const Kept& kept, SlotId slot) {
  if (kept.pins == 0 && !successors_.contains(kept.block.name)) {
    evictable_[kept.block.shape.value].emplace(kept.priority, slot);
  }
}

void BlockIndex::rate(Kept& kept, SlotId slot) {
  kept.priority = clock_ + kept.uses * (kCostOfWeights + kept.block.depth);
  uint64_t& slab = slab_use_[slot.slab].priority_max;
  slab = std::max(slab, kept.priority);
}

}  // namespace pdjob::store
