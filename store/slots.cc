#include "store/slots.h"

#include <algorithm>
#include <bit>

#include "common/check.h"
#include "common/limits.h"

namespace pdjob::store {
namespace {

constexpr uint64_t kSlabsMax = 256;    // Below limits::kSharedMappingsMax.
constexpr uint64_t kSlabsWanted = 16;  // Of a small memory, so that several shapes have room.
constexpr uint64_t kSlabWanted = 256 * limits::kMiB;
constexpr uint64_t kPage = 4096;

// Large slabs waste less at their ends; many slabs change their shapes sooner.
uint64_t choose_slab_bytes(uint64_t memory) {
  const uint64_t bytes = std::max(std::min(memory / kSlabsWanted, kSlabWanted), memory / kSlabsMax);
  return std::max(kPage, bytes / kPage * kPage);
}

}  // namespace

Slots::Slots(uint64_t slab_bytes, uint64_t slabs) : slab_bytes_(slab_bytes), slabs_(slabs) {
  for (uint32_t slab = 0; slab < slabs_.size(); ++slab) {
    unowned_.insert(unowned_.end(), slab);
  }
}

Slots Slots::of_memory(uint64_t bytes) {
  const uint64_t slab = choose_slab_bytes(bytes);
  return {slab, bytes / slab};
}

Slots Slots::of_disk(uint64_t bytes) {
  const uint64_t slab =
      std::max(kPage, std::min(kSlabWanted, std::bit_floor(bytes / kSlabsWanted)));
  return {slab, bytes / slab};
}

ShapeId Slots::add_shape(uint64_t bytes) {
  PDJOB_CHECK(bytes > 0, shapes_.size());
  shapes_.push_back({.bytes = bytes, .open = {}});
  return ShapeId{static_cast<uint32_t>(shapes_.size() - 1)};
}

uint64_t Slots::slab_part(ShapeId shape) const {
  const uint64_t slots = slab_bytes_ / shapes_[shape.value].bytes;
  return (slab_bytes_ + slots - 1) / slots;
}

std::optional<SlotId> Slots::take(ShapeId shape) {
  Shape& of = shapes_[shape.value];
  if (of.open.empty()) {
    if (unowned_.empty() || !fits(shape)) {
      return std::nullopt;
    }
    own(*unowned_.begin(), shape);
  }
  const uint32_t slab = *of.open.begin();
  return take_free(slab, *slabs_[slab].free.begin());
}

bool Slots::take_at(ShapeId shape, SlotId slot) {
  if (slot.slab >= slabs_.size() || !fits(shape) ||
      slot.index >= slab_bytes_ / shapes_[shape.value].bytes) {
    return false;
  }
  Slab& slab = slabs_[slot.slab];
  if (!slab.owner) {
    own(slot.slab, shape);
  }
  if (slab.owner != shape || slab.taken[slot.index]) {
    return false;
  }
  take_free(slot.slab, slot.index);
  return true;
}

void Slots::own(uint32_t slab, ShapeId shape) {
  unowned_.erase(slab);
  Shape& of = shapes_[shape.value];
  of.open.insert(slab);
  Slab& owned = slabs_[slab];
  owned.owner = shape;
  const auto count = static_cast<uint32_t>(slab_bytes_ / of.bytes);
  owned.taken.assign(count, false);
  for (uint32_t index = 0; index < count; ++index) {
    owned.free.insert(owned.free.end(), index);
  }
}

SlotId Slots::take_free(uint32_t slab, uint32_t index) {
  Slab& from = slabs_[slab];
  Shape& of = shapes_[from.owner->value];
  from.free.erase(index);
  if (from.free.empty()) {
    of.open.erase(slab);
  }
  from.taken[index] = true;
  bytes_used_ += of.bytes;
  return {.slab = slab, .index = index};
}

void Slots::give(SlotId slot) {
  Slab& slab = slabs_[slot.slab];
  PDJOB_CHECK(slab.owner && slab.taken[slot.index], slot.slab, slot.index);
  Shape& of = shapes_[slab.owner->value];
  slab.taken[slot.index] = false;
  slab.free.insert(slot.index);
  of.open.insert(slot.slab);
  bytes_used_ -= of.bytes;
  if (slab.free.size() == slab.taken.size()) {
    of.open.erase(slot.slab);
    slab.owner.reset();
    slab.free.clear();
    slab.taken.clear();
    unowned_.insert(slot.slab);
  }
}

uint64_t Slots::offset(SlotId slot) const {
  const Slab& slab = slabs_[slot.slab];
  PDJOB_CHECK(slab.owner.has_value(), slot.slab);
  return shapes_[slab.owner->value].bytes * slot.index;
}

}  // namespace pdjob::store
