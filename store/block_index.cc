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
  evictable_of_.emplace_back();
}

// --- blocks that come

std::optional<SlotId> BlockIndex::reserve(const Block& block) {
  if (!fits_its_successors(block) || !slots_.fits(block.shape)) {
    return std::nullopt;
  }
  add_successor(block);  // First, so that the block before it is not evicted for it.
  add_bytes(block);
  const auto slot = make_room(block);
  if (slot) {
    coming_.emplace(*slot, block);
  } else {
    remove_successor(block.parent);
    remove_bytes(block);
  }
  return slot;
}

bool BlockIndex::restore(const Block& block, SlotId slot, uint64_t digest) {
  if (by_name_.contains(block.name) || !fits_its_successors(block) ||
      !slots_.take_at(block.shape, slot)) {
    return false;
  }
  add_successor(block);
  add_bytes(block);
  enter(slot, block.owner);
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
  remove_bytes(lost.mapped());
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
  remove_bytes(kept.block);
  kept.dropped = true;
  if (kept.pins == 0) {
    kept_.erase(slot);
    slots_.give(slot);
  }
}

// --- eviction

std::optional<SlotId> BlockIndex::take_slot(const Block& block) {
  const auto slot = slots_.take(block.shape);
  if (slot) {
    enter(*slot, block.owner);
  }
  return slot;
}

void BlockIndex::enter(SlotId slot, BlockOwner owner) {
  SlabUse& use = slab_use_[slot.slab];
  ++use.moving;
  if (slots_.taken(slot.slab) == 1) {
    use.priority_max = 0;
    use.owner = owner;
    use.has_others = false;
  }
  use.has_others = use.has_others || use.owner != owner;
}

std::optional<SlotId> BlockIndex::make_room(const Block& block) {
  if (const auto free = take_slot(block)) {
    return free;
  }
  const auto victim = find_victim(block);
  if (const auto slab = find_slab(block, victim)) {
    evict_slab(*slab);
    return take_slot(block);
  }
  if (const auto own = find_own_of_other_shape(block, victim)) {
    evict(*own);
    if (const auto free = take_slot(block)) {
      return free;
    }
  }
  if (victim) {
    evict(*victim);
  }
  return take_slot(block);
}

std::optional<SlotId> BlockIndex::find_victim(const Block& block) const {
  const Owner& own = owners_.at(block.owner);
  const auto of_shape = own.evictable.find(block.shape);
  const bool has_own = of_shape != own.evictable.end();
  const auto& all = evictable_of_[block.shape.value];
  if (!all.empty()) {
    const auto [bytes, owner] = *all.rbegin();
    if (owner != block.owner && is_above_share(owner) && (bytes > own.bytes || !has_own)) {
      return owners_.at(owner).evictable.at(block.shape).begin()->second;
    }
  }
  return has_own ? std::optional(of_shape->second.begin()->second) : std::nullopt;
}

// Of several, the one with the lowest priority_max.
std::optional<uint32_t> BlockIndex::find_slab(const Block& block,
                                              std::optional<SlotId> victim) const {
  const bool above = is_above_share(block.owner);
  const bool loses_own = !victim || kept_.at(*victim).block.owner == block.owner;
  std::optional<uint32_t> spare;
  std::optional<uint32_t> old;
  const auto is_lower = [this](uint32_t slab, std::optional<uint32_t> than) {
    return !than || slab_use_[slab].priority_max < slab_use_[*than].priority_max;
  };
  for (uint32_t slab = 0; slab < slots_.slabs(); ++slab) {
    const SlabUse& use = slab_use_[slab];
    if (slots_.owner(slab) == block.shape || use.moving > 0) {
      continue;
    }
    const bool is_own = !use.has_others && use.owner == block.owner;
    if (!above && loses_own && !is_own && is_spare(use)) {
      spare = is_lower(slab, spare) ? slab : spare;
    } else if ((is_own || !above) && use.priority_max < priority(victim)) {
      old = is_lower(slab, old) ? slab : old;
    }
  }
  return spare ? spare : old;
}

bool BlockIndex::is_spare(const SlabUse& use) const {
  const uint64_t bytes = use.has_others ? 0 : bytes_of(use.owner);
  return bytes > slots_.slab_bytes() &&
         (bytes - slots_.slab_bytes()) * owners() >= slots_.bytes_max();
}

std::optional<SlotId> BlockIndex::find_own_of_other_shape(const Block& block,
                                                          std::optional<SlotId> victim) const {
  if (!is_above_share(block.owner)) {
    return std::nullopt;
  }
  uint64_t below = priority(victim);
  std::optional<SlotId> least;
  for (const auto& [shape, order] : owners_.at(block.owner).evictable) {
    const auto& [priority, slot] = *order.begin();
    if (shape != block.shape && priority < below) {
      below = priority;
      least = slot;
    }
  }
  return least;
}

uint64_t BlockIndex::priority(std::optional<SlotId> victim) const {
  return victim ? kept_.at(*victim).priority : std::numeric_limits<uint64_t>::max();
}

void BlockIndex::evict_slab(uint32_t slab) {
  while (true) {
    const auto next = kept_.lower_bound({.slab = slab, .index = 0});
    if (next == kept_.end() || next->first.slab != slab) {
      return;
    }
    evict(next->first);
  }
}

void BlockIndex::evict(SlotId slot) {
  const Kept& kept = kept_.at(slot);
  PDJOB_CHECK(kept.pins == 0 && !kept.dropped, slot.slab, slot.index);
  clock_ = std::max(clock_, kept.priority);
  ++evicted_;
  drop(slot);
}

// --- owners

uint64_t BlockIndex::bytes_of(BlockOwner owner) const {
  const auto found = owners_.find(owner);
  return found == owners_.end() ? 0 : found->second.bytes;
}

bool BlockIndex::is_above_share(BlockOwner owner) const {
  return owners_.size() > 1 && bytes_of(owner) * owners_.size() > slots_.bytes_max();
}

void BlockIndex::add_bytes(const Block& block) {
  set_bytes(block.owner, bytes_of(block.owner) + slots_.slab_part(block.shape));
}

void BlockIndex::remove_bytes(const Block& block) {
  set_bytes(block.owner, bytes_of(block.owner) - slots_.slab_part(block.shape));
}

void BlockIndex::set_bytes(BlockOwner owner, uint64_t bytes) {
  Owner& of = owners_[owner];
  for (const auto& [shape, order] : of.evictable) {
    evictable_of_[shape.value].erase({of.bytes, owner});
    evictable_of_[shape.value].emplace(bytes, owner);
  }
  of.bytes = bytes;
  if (bytes == 0) {
    owners_.erase(owner);
  }
}

// --- successors, and the order of eviction

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
  Owner& owner = owners_.at(kept.block.owner);
  const ShapeId shape = kept.block.shape;
  const auto order = owner.evictable.find(shape);
  if (order != owner.evictable.end() && order->second.erase({kept.priority, slot}) > 0 &&
      order->second.empty()) {
    owner.evictable.erase(order);
    evictable_of_[shape.value].erase({owner.bytes, kept.block.owner});
  }
}

void BlockIndex::list(const Kept& kept, SlotId slot) {
  if (kept.pins == 0 && !successors_.contains(kept.block.name)) {
    Owner& owner = owners_.at(kept.block.owner);
    const ShapeId shape = kept.block.shape;
    owner.evictable[shape].emplace(kept.priority, slot);
    evictable_of_[shape.value].emplace(owner.bytes, kept.block.owner);
  }
}

void BlockIndex::rate(Kept& kept, SlotId slot) {
  kept.priority = clock_ + kept.uses * (kCostOfWeights + kept.block.depth);
  uint64_t& slab = slab_use_[slot.slab].priority_max;
  slab = std::max(slab, kept.priority);
}

}  // namespace pdjob::store
