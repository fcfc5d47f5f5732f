// BlockIndex: the blocks in one tier of a store, its memory or its disk: which there are, in which
// slots, and which go first.
//
//   reserve() --> coming --keep()--> kept --evicted by reserve(), or drop()--> .
//                   \--abandon()--> taken by nobody --release()--> .
//
// Blocks are chains: each makes sense only behind the block before it. So a block with a successor
// here is not evicted, be the successor kept or coming.
//
// Eviction is GreedyDual (Young 1994; Cao and Irani 1997, with counts as in GDSF): a block's
// priority is `clock + uses * cost`, set when it comes and at each use; the lowest one goes, and
// the clock becomes that priority. So blocks that are used, or that are expensive to compute, stay
// longer, and nothing stays for ever. The cost of a block grows with its place in the prompt,
// because its tokens attend to all tokens before it. Each step costs O(log n) per block.
//
// A shape that lacks a slot evicts its own block of lowest priority. It gets a whole slab of
// another shape if each block there has a still lower priority, or if it has nothing to evict. This
// is the only way in which a block may go before its successor, which is then useless until the
// block comes again. A pinned block stays in any case. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <unordered_map>
#include <utility>
#include <vector>

#include "common/id.h"
#include "store/slots.h"

namespace pdjob::store {

// A block, and its place in its prompt.
struct Block {
  BlockName name;
  std::optional<BlockName> parent;  // The block before it.
  uint32_t depth = 0;               // Blocks before it.
  ShapeId shape;
};

class BlockIndex {
 public:
  explicit BlockIndex(Slots slots) : slots_(std::move(slots)), slab_use_(slots_.slabs()) {}

  // Declares the next shape, whose blocks need `bytes` each. None comes if a slab is too small.
  void add_shape(uint64_t bytes);

  // The slot for a block that is not here, perhaps in the place of others. None: what is here is
  // pinned or on its way, or the block cannot be where its successors say.
  std::optional<SlotId> reserve(const Block& block);
  // The same for a block that this slot holds already.
  bool restore(const Block& block, SlotId slot, uint64_t digest);
  const Block& coming(SlotId slot) const { return coming_.at(slot); }
  // The block has come, with rows of this digest.
  void keep(SlotId slot, uint64_t digest);
  // It has not. The slot stays taken until release().
  void abandon(SlotId slot);
  void release(SlotId slot);

  std::optional<SlotId> find(BlockName name) const;
  const Block& block(SlotId slot) const { return kept_.at(slot).block; }
  uint64_t digest(SlotId slot) const { return kept_.at(slot).digest; }

  // Somebody moves the rows of a kept block.
  void pin(SlotId slot);
  void unpin(SlotId slot);
  void count_use(SlotId slot);
  // Forgets the name at once, and the slot after the last unpin().
  void drop(SlotId slot);

  size_t size() const { return by_name_.size(); }
  uint64_t evicted() const { return evicted_; }
  const Slots& slots() const { return slots_; }

 private:
  struct Kept {
    Block block;
    uint64_t digest = 0;
    uint32_t uses = 1;
    uint64_t priority = 0;
    uint32_t pins = 0;
    bool dropped = false;
  };
  // The kept and coming successors of a block, which may be missing itself. All have one depth, so
  // no list of a lying peer makes a circle.
  struct Successors {
    uint32_t count = 0;
    uint32_t depth = 0;
  };
  struct SlabUse {
    uint64_t priority_max = 0;  // Of all blocks since it was empty.
    uint32_t moving = 0;        // Slots that are pinned, coming or abandoned.
  };

  bool fits_its_successors(const Block& block) const;
  // Both count the slot as moving.
  std::optional<SlotId> make_room(ShapeId shape);
  std::optional<SlotId> take_slot(ShapeId shape);
  std::optional<uint32_t> least_slab_of_others(ShapeId shape, uint64_t below) const;
  void evict(SlotId slot);

  void add_successor(const Block& block);
  void remove_successor(const std::optional<BlockName>& parent);
  // Around each change of a block: takes it out of the order of eviction, and puts it back if it
  // may be evicted.
  void unlist(const Kept& kept, SlotId slot);
  void list(const Kept& kept, SlotId slot);
  void rate(Kept& kept, SlotId slot);

  Slots slots_;
  uint64_t clock_ = 0;
  uint64_t evicted_ = 0;
  std::map<SlotId, Block> coming_;
  std::map<SlotId, Kept> kept_;
  std::unordered_map<BlockName, SlotId> by_name_;
  std::unordered_map<BlockName, Successors> successors_;
  // Blocks that may be evicted, by shape: the first one goes first.
  std::vector<std::set<std::pair<uint64_t, SlotId>>> evictable_;
  std::vector<SlabUse> slab_use_;
};

}  // namespace pdjob::store
