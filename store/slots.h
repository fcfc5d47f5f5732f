// Slots: which places of a store's memory, or of its disk, are taken. A tier consists of slabs of
// equal size. A slab belongs to one shape of blocks, and is divided into slots of that shape. Once
// all its slots are free it belongs to nobody, and the next shape in need gets it. It touches no
// bytes (store/arena.h and store/file_disk.h do). Pure.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <set>
#include <vector>

#include "store/block_shape.h"

namespace pdjob::store {

struct SlotId {
  uint32_t slab = 0;
  uint32_t index = 0;
  friend auto operator<=>(const SlotId&, const SlotId&) = default;
};

class Slots {
 public:
  // At most 256 slabs or so, because each peer maps every slab that it writes.
  static Slots of_memory(uint64_t bytes);
  // Slabs that stay the same if the size of a large disk changes.
  static Slots of_disk(uint64_t bytes);

  // Declares the next shape, whose blocks need `bytes` each.
  ShapeId add_shape(uint64_t bytes);
  size_t shapes() const { return shapes_.size(); }
  // False: a slab is too small for one such block.
  bool fits(ShapeId shape) const { return shapes_[shape.value].bytes <= slab_bytes_; }

  // What one slot takes of a slab, with its part of the bytes that are left at the slab's end.
  // Requires: fits(shape).
  uint64_t slab_part(ShapeId shape) const;

  // Takes a slot from the first slab of the shape that has a free one, or else from a slab that
  // belongs to nobody. None: neither exists.
  std::optional<SlotId> take(ShapeId shape);
  // Takes this slot. False: it is taken, or its slab belongs to another shape, or does not have it.
  bool take_at(ShapeId shape, SlotId slot);
  void give(SlotId slot);

  uint64_t slab_bytes() const { return slab_bytes_; }
  uint32_t slabs() const { return static_cast<uint32_t>(slabs_.size()); }
  std::optional<ShapeId> owner(uint32_t slab) const { return slabs_[slab].owner; }
  size_t taken(uint32_t slab) const { return slabs_[slab].taken.size() - slabs_[slab].free.size(); }
  uint64_t offset(SlotId slot) const;  // Within its slab.
  uint64_t bytes_used() const { return bytes_used_; }
  uint64_t bytes_max() const { return slab_bytes_ * slabs_.size(); }

 private:
  struct Shape {
    uint64_t bytes = 0;
    std::set<uint32_t> open;  // Its slabs with a free slot.
  };
  struct Slab {
    std::optional<ShapeId> owner;
    std::set<uint32_t> free;
    std::vector<bool> taken;
  };

  Slots(uint64_t slab_bytes, uint64_t slabs);
  void own(uint32_t slab, ShapeId shape);
  SlotId take_free(uint32_t slab, uint32_t index);

  uint64_t slab_bytes_;
  std::vector<Slab> slabs_;
  std::set<uint32_t> unowned_;
  std::vector<Shape> shapes_;  // By ShapeId.
  uint64_t bytes_used_ = 0;
};

}  // namespace pdjob::store
