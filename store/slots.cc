#include "store/slots.h"

#include <algorithm>

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

Slots::Slots(uint64_t memory_bytes)
    : slab_bytes_(choose_slab_bytes(memory_bytes)), slabs_(memory_bytes / slab_bytes_) {
  for (uint32_t slab = 0; slab < slabs(); ++slab) {
    unowned_.insert(unowned_.end(), slab);
  }
}

std::optional<ShapeId> Slots::add_shape(uint64_t bytes) {
  if (bytes == 0 || bytes > slab_bytes_) {
    return std::nullopt;
  }
  shapes_.push_back({.bytes = bytes, .open = {}});
  return ShapeId{static_cast<uint32_t>(shapes_.size() - 1)};
}

std::optional<SlotId> Slots::take(ShapeId shape) {
  Shape& of = shapes_[shape.value];
  if (of.open.empty()) {
    if (unowned_.empty()) {
      return std::nullopt;
    }
    const uint32_t fresh = *unowned_.begin();
    unowned_.erase(unowned_.begin());
    of.open.insert(fresh);
    Slab& slab = slabs_[fresh];
    slab.owner = shape;
    const auto count = static_cast<uint32_t>(slab_bytes_ / of.bytes);
    slab.taken.assign(count, false);
    slab.free.clear();
    for (uint32_t index = count; index > 0; --index) {
      slab.free.push_back(index - 1);
    }
  }
  const uint32_t number = *of.open.begin();
  Slab& slab = slabs_[number];
  const uint32_t index = slab.free.back();
  slab.free.pop_back();
  if (slab.free.empty()) {
    of.open.erase(number);
  }
  slab.taken[index] = true;
  bytes_used_ += of.bytes;
  return SlotId{.slab = number, .index = index};
}

void Slots::give(SlotId slot) {
  Slab& slab = slabs_[slot.slab];
  PDJOB_CHECK(slab.owner && slab.taken[slot.index], slot.slab, slot.index);
  Shape& of = shapes_[slab.owner->value];
  slab.taken[slot.index] = false;
  slab.free.push_back(slot.index);
  of.open.insert(slot.slab);
  bytes_used_ -= of.bytes;
  if (slab.free.size() == slab.taken.size()) {
    of.open.erase(slot.slab);
    slab.owner.reset();
    unowned_.insert(slot.slab);
  }
}

uint64_t Slots::offset(SlotId slot) const {
  const Slab& slab = slabs_[slot.slab];
  PDJOB_CHECK(slab.owner.has_value(), slot.slab);
  return shapes_[slab.owner->value].bytes * slot.index;
}

}  // namespace pdjob::store
