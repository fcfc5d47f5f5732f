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
// longer, and nothing stays for ever if its owner has new blocks. The cost of a block grows with
// its place in the prompt, because its tokens attend to all tokens before it. Each step costs
// O(log n) per block.
//
// Owners (tenants) share the tier. The share of each is the tier, divided by the owners that have
// blocks here. A block counts from reserve() on. If its shape has no free slot, the owner with most
// bytes loses a block of this shape. It must have more than its share, and more than the owner of
// the new block. Otherwise the latter loses one of its own. Of one owner's blocks, that of lowest
// priority goes. So an owner within its share loses no block to another one that lacks a slot, and
// an owner alone may use everything.
//
// A shape may also get a whole slab of another shape, which may have blocks of several owners:
// - An owner within its share does not evict a block of its own if there is a slab of one other
//   owner, who keeps its share without it.
// - Else it gets a slab in which each block has a lower priority than the block that would go
//   otherwise. If none would go, it gets the slab of lowest priority.
// - An owner with more than its share gets no slab, except one of blocks of its own. Instead, it
//   loses a block of another shape, too, if that one's priority is lower than that of the block
//   that goes. So it comes within its share, and old blocks of a model that is gone make room.
// So a flood in two shapes cannot take more from others than slabs that make one share.
//
// Slabs are the only way in which a block may go before its successor, which is then useless until
// the block comes again. A pinned block stays in any case.
//
// Owners are what peers say, and peers are workers of the job (kvtransfer/link). A worker that made
// up owners would make all shares smaller. An owner leaves with its last block. So there are at
// most as many owners as blocks. Pure.
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
#include "kvtransfer/link/link_message.h"
#include "store/slots.h"

namespace pdjob::store {

using kvtransfer::BlockOwner;

// A block, and its place in its prompt.
struct Block {
  BlockName name;
  std::optional<BlockName> parent;  // The block before it.
  BlockOwner owner;
  uint32_t depth = 0;  // Blocks before it.
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
  size_t owners() const { return owners_.size(); }
  // Of its blocks that are kept or coming, with their part of the ends of slabs.
  uint64_t bytes_of(BlockOwner owner) const;
  // An owner alone never has more than its share.
  bool is_above_share(BlockOwner owner) const;
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
    uint32_t moving = 0;  // Slots that are pinned, coming or abandoned.
    // Since it was empty:
    uint64_t priority_max = 0;
    BlockOwner owner;  // Of its first block.
    bool has_others = false;
  };
  // Blocks of one owner and shape that may be evicted: the first one goes first.
  using Order = std::set<std::pair<uint64_t, SlotId>>;
  struct Owner {
    uint64_t bytes = 0;
    std::map<ShapeId, Order> evictable;  // None is empty.
  };

  bool fits_its_successors(const Block& block) const;
  // The block's owner has its bytes already.
  std::optional<SlotId> make_room(const Block& block);
  std::optional<SlotId> take_slot(const Block& block);
  void enter(SlotId slot, BlockOwner owner);  // A slot that was taken. It is moving.
  // What goes for the block: a block of its shape, a slab of another one, or a block of its owner
  // of another one.
  std::optional<SlotId> find_victim(const Block& block) const;
  std::optional<uint32_t> find_slab(const Block& block, std::optional<SlotId> victim) const;
  std::optional<SlotId> find_own_of_other_shape(const Block& block,
                                                std::optional<SlotId> victim) const;
  // Its one owner keeps its share without it.
  bool is_spare(const SlabUse& use) const;
  uint64_t priority(std::optional<SlotId> victim) const;
  void evict_slab(uint32_t slab);
  void evict(SlotId slot);

  void add_bytes(const Block& block);
  void remove_bytes(const Block& block);
  void set_bytes(BlockOwner owner, uint64_t bytes);

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
  std::map<BlockOwner, Owner> owners_;  // Of kept and coming blocks.
  // By shape: the owners with blocks that may be evicted, and their bytes. The last one has most.
  std::vector<std::set<std::pair<uint64_t, BlockOwner>>> evictable_of_;
  std::vector<SlabUse> slab_use_;
};

}  // namespace pdjob::store
