// BlockStore: the core of a store. It decides which blocks are kept in memory and behind it on a
// disk, offered, refused, fetched and evicted. Bytes and models are unknown to it.
//
//   told kHeld --> queued --> fetching --FetchDone--> in memory --evicted, or corrupt--> .
//                     |           \--FetchFailed, unsafe--> retired --FetchReleased--> .
//                     \--the block before it is missing--> .
//
//   in memory --written--> in memory and on disk --evicted from memory--> on disk
//   on disk --wanted, read--> in memory and on disk
//
// Blocks are chains (store/block_index.h). So a store refuses every wanted block behind the first
// missing one. It fetches no block whose predecessor is neither here nor on its way.
//
// Each block that came is written to the disk behind it, a few at a time, and stays on disk when it
// leaves memory, and when the store ends. A disk that fails costs what was to be written or read,
// and gets a rest. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <unordered_map>
#include <unordered_set>
#include <variant>
#include <vector>

#include "common/core.h"
#include "common/id.h"
#include "common/result.h"
#include "common/time.h"
#include "kvtransfer/link/endpoint_address.h"
#include "kvtransfer/session/endpoint_event.h"
#include "store/block_disk.h"
#include "store/block_index.h"
#include "store/block_shape.h"

namespace pdjob::store {

struct BlockStoreOptions {
  uint64_t memory_bytes = 0;
  uint64_t disk_bytes = 0;   // 0: no disk.
  size_t shapes_max = 64;    // Ever met; blocks of further ones are not kept.
  size_t fetches_max = 16;   // Under way at once.
  size_t queued_max = 4096;  // Blocks that wait to be fetched; as many wait to be written.
  size_t offers_max =
      2048;               // Under way at once, also those that wait for the disk; beyond: refused.
  size_t writes_max = 4;  // Under way at once.
  Duration offer_timeout = std::chrono::seconds(10);  // For a peer to begin to fetch.
  Duration fetch_timeout = std::chrono::seconds(10);
  Duration disk_rest = std::chrono::seconds(10);  // No writes for so long after one that failed.
};

// --- events: those of the endpoint, and three of the shell

// Keep no more blocks and give none. Transfers and writes under way go on.
struct DrainAsked {};
// Read or Write has ended.
struct BlockRead {
  BlockName name;
  bool ok = false;
};
struct BlockWritten {
  BlockName name;
  bool ok = false;
};
using Event =
    std::variant<kvtransfer::OfferAwaited, kvtransfer::OfferDone, kvtransfer::OfferFailed,
                 kvtransfer::FetchDone, kvtransfer::FetchFailed, kvtransfer::FetchReleased,
                 kvtransfer::BlocksTold, BlockRead, BlockWritten, DrainAsked>;

// --- effects

// Where the rows of a block are in memory.
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
// Copy a block from disk into memory.
struct Read {
  BlockName name;
  SlotId from;
  Place to;
};
// Copy a block from memory to disk.
struct Write {
  Block block;
  uint64_t digest = 0;
  Place from;
  SlotId to;
};
using Effect = std::variant<Offer, Refuse, Fetch, BlockCorrupt, Read, Write>;

// Since the start.
struct StoreCounts {
  uint64_t tokens_wanted = 0;
  uint64_t tokens_given = 0;  // Of the former: offered.
  uint64_t taken = 0;
  uint64_t corrupt = 0;
  uint64_t fetches_failed = 0;
  // Blocks that were held, and not fetched:
  uint64_t no_room = 0;   // Everything is being moved, or no slab is large enough.
  uint64_t too_many = 0;  // The queue was full.
  uint64_t useless = 0;   // The block before it is missing.
  // Blocks that
  uint64_t read = 0;         // came from the disk,
  uint64_t written = 0;      // went there,
  uint64_t not_written = 0;  // did not, because it was slow, full of blocks in use, or failed,
  uint64_t disk_failed = 0;  // it failed to read or write.
};

class BlockStore {
 public:
  explicit BlockStore(const BlockStoreOptions& options);

  // Takes over the blocks that an earlier store left on the disk. Call it before the first step().
  // Returns how many of the blocks are of use; the places of the others are free.
  size_t restore(std::vector<StoredBlock> found);

  void step(const Event& event, Instant now, std::vector<Effect>& effects);
  // All deadlines are the endpoint's. The disk rests until the first event after its time.
  Instant next_wakeup() const { return kNever; }

  const BlockShape& shape(ShapeId id) const { return *shapes_[id.value]; }
  const StoreCounts& counts() const { return counts_; }
  size_t blocks() const { return memory_.size(); }  // In memory.
  const Slots& slots() const { return memory_.slots(); }
  const BlockIndex& memory() const { return memory_; }
  const BlockIndex& disk() const { return disk_; }
  size_t fetches() const { return fetches_.size(); }
  size_t queued() const { return queue_.size(); }
  size_t offers() const { return offers_.size() + waiting_.size(); }
  size_t unwritten() const { return to_write_.size() + writes_.size(); }

 private:
  using Turn = pdjob::Turn<Effect>;
  // A block to be fetched.
  struct Coming {
    Block block;
    TransferId transfer;
    std::shared_ptr<const kvtransfer::EndpointAddress> holder;  // Of all blocks of one list.
  };
  struct Fetching {
    SlotId slot;
    std::shared_ptr<const kvtransfer::EndpointAddress> holder;
  };
  // A block on its way: its depth, and whether its slot is reserved.
  struct OnItsWay {
    uint32_t depth = 0;
    bool fetching = false;
  };
  // A block on its way from the disk into memory, and who waits for it.
  struct Reading {
    SlotId from;
    SlotId to;
    std::vector<TransferId> waiting;
  };
  struct Writing {
    SlotId from;
    SlotId to;
  };

  void on(const kvtransfer::BlocksTold& event, Turn& turn);
  void on(const kvtransfer::OfferDone& event, Turn& turn);
  void on(const kvtransfer::OfferFailed& event, Turn& turn);
  void on(const kvtransfer::FetchDone& event, Turn& turn);
  void on(const kvtransfer::FetchFailed& event, Turn& turn);
  void on(const kvtransfer::FetchReleased& event, Turn& turn);
  void on(const kvtransfer::OfferAwaited& /*event*/, Turn& /*turn*/) {}
  void on(const BlockRead& event, Turn& turn);
  void on(const BlockWritten& event, Turn& turn);
  void on(const DrainAsked& event, Turn& turn);

  std::optional<ShapeId> find_shape(const BlockShape& shape) const;
  std::optional<ShapeId> find_or_add_shape(BlockShape shape);

  void answer(const kvtransfer::BlockNews& news, Turn& turn);
  std::optional<Error> give(const kvtransfer::NamedBlock& block, std::optional<ShapeId> shape,
                            Turn& turn);
  std::optional<Error> give_from_disk(SlotId slot, TransferId id, Turn& turn);
  void offer(TransferId id, SlotId slot, Turn& turn);
  void end_offer(TransferId id, bool corrupt, Turn& turn);

  void enqueue(const kvtransfer::BlockNews& news);
  std::optional<uint32_t> depth_of(BlockName name) const;
  void start_fetches(Turn& turn);
  bool is_useful(const Coming& coming) const;
  // Returns the slot of a fetch that has ended without a block. Drops the rest of its holder's
  // list: a holder that is silent costs one timeout, however long the list.
  SlotId give_up(const Fetching& fetch);

  void start_writes(Turn& turn);

  const BlockStoreOptions options_;
  std::map<BlockShape, ShapeId> shape_ids_;
  std::vector<const BlockShape*> shapes_;  // Keys of `shape_ids_`.
  BlockIndex memory_;
  BlockIndex disk_;
  bool draining_ = false;

  std::unordered_map<TransferId, SlotId> offers_;
  std::deque<Coming> queue_;
  std::unordered_map<BlockName, OnItsWay> on_their_way_;  // Queued or being fetched.
  std::unordered_map<TransferId, Fetching> fetches_;
  std::unordered_map<TransferId, SlotId> retired_;  // A peer may still write there.

  std::unordered_map<BlockName, Reading> reads_;
  std::unordered_set<TransferId> waiting_;  // For `reads_`.
  std::deque<BlockName> to_write_;
  std::unordered_map<BlockName, Writing> writes_;
  Instant disk_rests_until_{};
  StoreCounts counts_;
};

}  // namespace pdjob::store
