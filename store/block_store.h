// BlockStore: the core of a store. It decides which blocks are kept, offered, refused, fetched and
// evicted. Bytes and models are unknown to it.
//
//   told kHeld --> queued --> fetching --FetchDone--> kept --evicted, or its bytes are corrupt--> .
//                     |           \--FetchFailed, unsafe--> retired --FetchReleased--> .
//                     \--the block before it is missing--> .
//
// Blocks are chains: each makes sense only behind the block before it. So a store refuses every
// wanted block behind the first missing one, and fetches no block whose predecessor is neither here
// nor on its way. A block with a stored successor is not evicted.
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
// block comes again. A block that is being offered stays in any case. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

#include "common/core.h"
#include "common/id.h"
#include "common/result.h"
#include "common/time.h"
#include "kvtransfer/link/endpoint_address.h"
#include "kvtransfer/session/endpoint_event.h"
#include "store/block_shape.h"
#include "store/slots.h"

namespace pdjob::store {

struct BlockStoreOptions {
  uint64_t memory_bytes = 0;
  size_t shapes_max = 64;    // Ever met; blocks of further ones are not kept.
  size_t fetches_max = 16;   // Under way at once.
  size_t queued_max = 4096;  // Blocks that wait to be fetched.
  size_t offers_max = 2048;  // Under way at once; beyond: refused.
  Duration offer_timeout = std::chrono::seconds(10);  // For a peer to begin to fetch.
  Duration fetch_timeout = std::chrono::seconds(10);
};

// --- events: those of the endpoint, and one of the shell

// Keep no more blocks and give none. Transfers under way go on.
struct DrainAsked {};
using Event = std::variant<kvtransfer::OfferAwaited, kvtransfer::OfferDone, kvtransfer::OfferFailed,
                           kvtransfer::FetchDone, kvtransfer::FetchFailed,
                           kvtransfer::FetchReleased, kvtransfer::BlocksTold, DrainAsked>;

// --- effects

// Where the rows of a block are.
struct Place {
  SlotId slot;
  uint64_t offset = 0;  // Within slab `slot.slab`.
  ShapeId shape;        // BlockStore::shape().
  friend bool operator==(const Place&, const Place&) = default;
};
// Offer all rows at once; the offer must fail unless they have the digest.
struct Offer {
  TransferId id;
  Place place;
  uint64_t digest = 0;
  Instant deadline{};
};
struct Refuse {
  TransferId id;
  Error reason;
};
struct Fetch {
  TransferId id;
  kvtransfer::EndpointAddress holder;
  Place place;
  Instant deadline{};
};
// The bytes of a block are no longer those that were fetched. It is dropped.
struct BlockCorrupt {
  BlockName name;
};
using Effect = std::variant<Offer, Refuse, Fetch, BlockCorrupt>;

// Since the start.
struct StoreCounts {
  uint64_t tokens_wanted = 0;
  uint64_t tokens_given = 0;  // Of the former: offered.
  uint64_t taken = 0;
  uint64_t evicted = 0;
  uint64_t corrupt = 0;
  uint64_t fetches_failed = 0;
  // Blocks that were held, and not fetched:
  uint64_t no_room = 0;   // Everything is being moved, or no slab is large enough.
  uint64_t too_many = 0;  // The queue was full.
  uint64_t useless = 0;   // The block before it is missing.
};

class BlockStore {
 public:
  explicit BlockStore(const BlockStoreOptions& options);

  void step(const Event& event, Instant now, std::vector<Effect>& effects);
  // All deadlines are the endpoint's.
  Instant next_wakeup() const { return kNever; }

  const BlockShape& shape(ShapeId id) const { return *shapes_[id.value]; }
  const StoreCounts& counts() const { return counts_; }
  size_t blocks() const { return by_name_.size(); }
  size_t fetches() const { return fetches_.size(); }
  size_t queued() const { return queue_.size(); }
  size_t offers() const { return offers_.size(); }
  const Slots& slots() const { return slots_; }

 private:
  using Turn = pdjob::Turn<Effect>;
  using Parent = std::optional<BlockName>;
  struct Kept {
    BlockName name;
    Parent parent;
    uint32_t depth = 0;  // Blocks before it.
    ShapeId shape;
    uint64_t digest = 0;
    uint32_t uses = 1;
    uint64_t priority = 0;
    uint32_t offers = 0;   // Under way.
    bool corrupt = false;  // It has no name any more, and goes after the last offer.
  };
  // One list of blocks that a peer holds.
  struct Source {
    kvtransfer::EndpointAddress holder;
    ShapeId shape;
  };
  // A block to be fetched.
  struct Coming {
    BlockName name;
    TransferId transfer;
    Parent parent;
    uint32_t depth = 0;
    std::shared_ptr<const Source> source;
  };
  struct Fetching {
    Coming block;
    SlotId slot;
  };
  // Of a named block that may be missing itself: its successors that are kept or being fetched. All
  // have one depth, so no list of a lying peer makes a circle.
  struct Successors {
    uint32_t count = 0;
    uint32_t depth = 0;
  };
  struct SlabUse {
    uint64_t priority_max = 0;  // Of all blocks since it was empty.
    uint32_t moving = 0;        // Slots that are offered, fetched or retired.
  };
  // A block on its way: its depth, and whether its slot is reserved.
  struct OnItsWay {
    uint32_t depth = 0;
    bool fetching = false;
  };

  void on(const kvtransfer::BlocksTold& event, Turn& turn);
  void on(const kvtransfer::OfferDone& event, Turn& turn);
  void on(const kvtransfer::OfferFailed& event, Turn& turn);
  void on(const kvtransfer::FetchDone& event, Turn& turn);
  void on(const kvtransfer::FetchFailed& event, Turn& turn);
  void on(const kvtransfer::FetchReleased& event, Turn& turn);
  void on(const kvtransfer::OfferAwaited& /*event*/, Turn& /*turn*/) {}
  void on(const DrainAsked& event, Turn& turn);

  std::optional<ShapeId> find_shape(const kvtransfer::BlockNews& news) const;
  std::optional<ShapeId> find_or_add_shape(const kvtransfer::BlockNews& news);
  Place place_of(SlotId slot, ShapeId shape) const;

  void answer(const kvtransfer::BlockNews& news, Turn& turn);
  std::optional<Error> offer(const kvtransfer::NamedBlock& block, std::optional<ShapeId> shape,
                             Turn& turn);
  void end_offer(TransferId id, bool corrupt, Turn& turn);

  void enqueue(const kvtransfer::BlockNews& news);
  std::optional<uint32_t> depth_of(BlockName name) const;
  void start_fetches(Turn& turn);
  bool is_useful(const Coming& block) const;
  void give_up(const Fetching& fetch);  // The slot is not its any more.
  void release(SlotId slot);

  // Both count the slot as moving.
  std::optional<SlotId> make_room(ShapeId shape);
  std::optional<SlotId> take_slot(ShapeId shape);
  std::optional<uint32_t> least_slab_of_others(ShapeId shape, uint64_t below) const;
  void evict(SlotId slot);
  void forget_name(Kept& kept);

  void add_successor(const Coming& block);
  void remove_successor(const Parent& parent);
  // Around each change of a block: takes it out of the order of eviction, and puts it back if it
  // may be evicted.
  void unlist(const Kept& kept, SlotId slot);
  void list(const Kept& kept, SlotId slot);
  void use(Kept& kept, SlotId slot);  // For one more offer.
  void rate(Kept& kept, SlotId slot);

  const BlockStoreOptions options_;
  Slots slots_;
  std::map<BlockShape, ShapeId> shape_ids_;
  std::vector<const BlockShape*> shapes_;  // Keys of `shape_ids_`.
  uint64_t clock_ = 0;
  bool draining_ = false;

  std::map<SlotId, Kept> kept_;
  std::unordered_map<BlockName, SlotId> by_name_;
  std::unordered_map<BlockName, Successors> successors_;
  // What may be evicted, by shape: the first one goes first.
  std::vector<std::set<std::pair<uint64_t, SlotId>>> evictable_;
  std::vector<SlabUse> slab_use_;

  std::unordered_map<TransferId, SlotId> offers_;
  std::deque<Coming> queue_;
  std::unordered_map<BlockName, OnItsWay> on_their_way_;  // Queued or being fetched.
  std::unordered_map<TransferId, Fetching> fetches_;
  std::unordered_map<TransferId, SlotId> retired_;  // A peer may still write there.
  StoreCounts counts_;
};

}  // namespace pdjob::store
