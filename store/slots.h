// Slots: which places of a store's memory are taken. The memory consists of slabs of equal size. A
// slab belongs to one shape of blocks, and is divided into slots of that shape. Once all its slots
// are free it belongs to nobody, and the next shape in need gets it. It touches no memory
// (store/arena.h does). Pure.
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
  explicit Slots(uint64_t memory_bytes);

  // Declares a shape whose blocks need `bytes` each. Fails if a slab is too small for one.
  std::optional<ShapeId> add_shape(uint64_t bytes);
  size_t shapes() const { return shapes_.size(); }

  // Takes a slot from the first slab of the shape that has a free one, or else from a slab that
  // belongs to nobody. None: neither exists.
  std::optional<SlotId> take(ShapeId shape);
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
    std::vector<uint32_t> free;
    std::vector<bool> taken;
  };

  const uint64_t slab_bytes_;
  std::vector<Slab> slabs_;
  std::set<uint32_t> unowned_;
  std::vector<Shape> shapes_;  // By ShapeId.
  uint64_t bytes_used_ = 0;
};

}  // namespace pdjob::store
