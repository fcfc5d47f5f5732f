// A store under random events, against an oracle: memory and a disk in which every byte range
// remembers the block whose rows were written there last.
#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "common/random.h"
#include "store/block_store.h"

namespace pdjob::store {
namespace {

using kvtransfer::BlockNews;
using kvtransfer::BlocksTold;
using kvtransfer::FetchDone;
using kvtransfer::FetchFailed;
using kvtransfer::FetchReleased;
using kvtransfer::OfferDone;
using kvtransfer::OfferFailed;

// Prompts are paths in a tree of blocks: number n has the successors 3n + 1 .. 3n + 3.
constexpr uint64_t kBranches = 3;
constexpr uint64_t kDepthMax = 7;

BlockShape shape_of(uint64_t model) {
  return {.rows = 16, .row_bytes = std::vector<uint32_t>(1 + model, 40)};
}

struct Bytes {
  uint32_t slab = 0;
  uint64_t from = 0;
  friend auto operator<=>(const Bytes&, const Bytes&) = default;
};

class ChanceStory {
 public:
  // Blocks of `models` models, each with its own shape.
  ChanceStory(uint64_t seed, uint64_t models, const BlockStoreOptions& options)
      : random_(seed), models_(models), options_(options), store_(std::in_place, options) {}

  void run(int events) {
    for (int event = 0; event < events && !testing::Test::HasFailure(); ++event) {
      one_event();
      check_bounds();
    }
    finish();
  }

 private:
  enum class Use { kFilled, kBeingWritten };
  struct Content {
    uint64_t bytes = 0;
    BlockName name;
    uint64_t digest = 0;
    Use use = Use::kBeingWritten;
    int offers = 0;
  };

  struct Stored {
    StoredBlock block;
    uint64_t digest = 0;
    bool written = false;
    int readers = 0;
  };
  struct Moved {
    Bytes from;
    Bytes to;
  };

  void one_event() {
    const uint64_t chance = random_.below(100);
    if (chance < 25) {
      tell(BlockNews::Kind::kHeld);
    } else if (chance < 45) {
      tell(BlockNews::Kind::kWanted);
    } else if (chance < 75) {
      end_fetch();
    } else if (chance < 80) {
      release();
    } else if (chance < 85) {
      end_read();
    } else if (chance < 90) {
      end_write();
    } else if (chance == 90 && random_.chance(0.4)) {
      restart();
    } else {
      end_offer();
    }
  }

  void tell(BlockNews::Kind kind) {
    const uint64_t model = random_.below(models_);
    const BlockShape shape = shape_of(model);
    BlockNews news{.kind = kind, .rows = shape.rows, .row_bytes = shape.row_bytes};
    uint64_t number = 0;
    const uint64_t depth = 1 + random_.below(kDepthMax);
    const uint64_t skipped = random_.chance(0.1) ? random_.below(depth) : 0;
    for (uint64_t place = 0; place < depth; ++place) {
      number = kBranches * number + 1 + random_.below(random_.chance(0.5) ? 1 : kBranches);
      const BlockName name{.high = model, .low = number};
      if (place >= skipped) {
        news.blocks.push_back({.name = name, .transfer = id_for(name)});
      } else {
        news.before = name;
      }
    }
    if (random_.chance(0.02)) {
      std::ranges::reverse(news.blocks);  // A peer that lies.
    }
    note(news);
    asked_.clear();
    if (kind == BlockNews::Kind::kWanted) {
      for (const auto& block : news.blocks) {
        if (!offers_.contains(block.transfer) && !waiting_.contains(block.transfer)) {
          asked_.emplace(block.transfer, block.name);
        }
      }
    }
    refused_ = false;
    step(BlocksTold{.peer = "peer", .news = std::move(news)});
    await_disk();
  }

  // Who was not answered waits for the disk.
  void await_disk() {
    for (const auto& [id, name] : asked_) {
      EXPECT_TRUE(reads_.contains(name)) << "not answered";
      waiting_.emplace(id, name);
    }
    asked_.clear();
  }

  TransferId next_id() { return {.high = 0, .low = ++transfers_}; }

  // Sometimes an id that was used for this block before, and perhaps is still.
  TransferId id_for(BlockName name) {
    TransferId& id = last_id_[name];
    if (id.low == 0 || !random_.chance(0.05)) {
      id = next_id();
    }
    return id;
  }

  void end_fetch() {
    if (fetches_.empty()) {
      return;
    }
    const auto fetch = any(fetches_);
    const auto [id, at] = *fetch;
    fetches_.erase(fetch);
    Content& content = memory_.at(at);
    const uint64_t chance = random_.below(10);
    if (chance < 7) {
      content.use = Use::kFilled;
      content.digest = random_.next();
      step(FetchDone{.id = id, .rows = 16, .digest = content.digest});
      return;
    }
    const bool safe = chance < 9;
    if (safe) {
      memory_.erase(at);
    } else {
      retired_.emplace(id, at);
    }
    step(FetchFailed{.id = id, .error = {ErrorCode::kPeerFailed, ""}, .region_safe = safe});
  }

  void release() {
    if (retired_.empty()) {
      return;
    }
    const auto released = any(retired_);
    const TransferId id = released->first;
    memory_.erase(released->second);
    retired_.erase(released);
    step(FetchReleased{id});
  }

  void end_offer() {
    if (offers_.empty()) {
      return;
    }
    const auto offer = any(offers_);
    const auto [id, at] = *offer;
    offers_.erase(offer);
    --memory_.at(at).offers;
    const uint64_t chance = random_.below(20);
    if (chance == 0) {
      dropped_.insert(at);
      step(OfferFailed{.id = id, .error = {ErrorCode::kCorrupt, ""}, .rows_damaged = true});
    } else if (chance < 4) {
      step(OfferFailed{.id = id, .error = {ErrorCode::kCorrupt, ""}});
    } else {
      step(OfferDone{.id = id});
    }
  }

  void end_read() {
    if (reads_.empty()) {
      return;
    }
    const auto read = any(reads_);
    const auto [name, moved] = *read;
    reads_.erase(read);
    Stored& stored = on_disk_.at(moved.from);
    --stored.readers;
    const bool ok = !random_.chance(0.1);
    if (ok) {
      Content& content = memory_.at(moved.to);
      content.use = Use::kFilled;
      content.digest = stored.digest;
    } else {
      memory_.erase(moved.to);
    }
    refused_ = false;
    for (auto each = waiting_.begin(); each != waiting_.end();) {
      if (each->second == name) {
        asked_.insert(*each);
        each = waiting_.erase(each);
      } else {
        ++each;
      }
    }
    step(BlockRead{.name = name, .ok = ok});
    EXPECT_TRUE(asked_.empty()) << "a read was not answered";
    EXPECT_NE(refused_, ok);
  }

  void end_write() {
    if (writes_.empty()) {
      return;
    }
    const auto write = any(writes_);
    const auto [name, moved] = *write;
    writes_.erase(write);
    --memory_.at(moved.from).offers;
    const bool ok = !random_.chance(0.1);
    if (ok) {
      on_disk_.at(moved.to).written = true;
    } else {
      on_disk_.erase(moved.to);
    }
    step(BlockWritten{.name = name, .ok = ok});
  }

  // The process dies, and another one finds what is on the disk.
  void restart() {
    std::vector<StoredBlock> found;
    for (auto each = on_disk_.begin(); each != on_disk_.end();) {
      each->second.readers = 0;
      if (each->second.written) {
        found.push_back(each->second.block);
        ++each;
      } else {
        each = on_disk_.erase(each);
      }
    }
    fetches_.clear();
    retired_.clear();
    offers_.clear();
    waiting_.clear();
    reads_.clear();
    writes_.clear();
    memory_.clear();
    dropped_.clear();
    store_.emplace(options_);
    restored_ += store_->restore(std::move(found));
  }

  void step(const Event& event) {
    std::vector<Effect> effects;
    store_->step(event, Instant(), effects);
    for (const Effect& effect : effects) {
      std::visit([this](const auto& each) { take(each); }, effect);
    }
  }

  void take(const Offer& offer) {
    EXPECT_FALSE(refused_) << "offered behind a missing block";
    const auto asked = asked_.extract(offer.id);
    ASSERT_FALSE(asked.empty()) << "offered without being asked, or twice";
    const Bytes at{offer.place.slot.slab, offer.place.offset};
    const auto content = memory_.find(at);
    ASSERT_TRUE(content != memory_.end());
    EXPECT_EQ(content->second.use, Use::kFilled);
    EXPECT_EQ(content->second.name, asked.mapped());
    EXPECT_EQ(content->second.digest, offer.digest);
    EXPECT_FALSE(dropped_.contains(at)) << "a corrupt block is offered";
    ++content->second.offers;
    offers_.emplace(offer.id, at);
  }
  void take(const Refuse& refuse) {
    refused_ = true;
    EXPECT_EQ(asked_.erase(refuse.id), 1U) << "refused without being asked, or twice";
  }
  void take(const Fetch& fetch) {
    const Bytes at{fetch.place.slot.slab, fetch.place.offset};
    const uint64_t bytes = slot_bytes(store_->shape(fetch.place.shape));
    EXPECT_LT(at.slab, store_->slots().slabs());
    EXPECT_LE(at.from + bytes, store_->slots().slab_bytes());
    overwrite(at, bytes);
    EXPECT_FALSE(fetches_.contains(fetch.id) || retired_.contains(fetch.id));
    fetches_.emplace(fetch.id, at);
    memory_[at] = {.bytes = bytes, .name = names_.at(fetch.id)};
    ++fetches_seen_;
  }
  void take(const BlockCorrupt& /*block*/) {}
  void take(const Read& read) {
    const BlockShape shape = shape_of(read.name.high);
    const Bytes from = on_disk(read.from, shape);
    const Bytes to{read.to.slot.slab, read.to.offset};
    Stored& stored = on_disk_.at(from);
    EXPECT_EQ(stored.block.block.name, read.name);
    EXPECT_TRUE(stored.written);
    ++stored.readers;
    overwrite(to, slot_bytes(shape));
    memory_[to] = {.bytes = slot_bytes(shape), .name = read.name};
    ++reads_seen_;
    EXPECT_TRUE(reads_.emplace(read.name, Moved{from, to}).second);
  }
  void take(const Write& write) {
    const BlockShape& shape = store_->shape(write.block.shape);
    const Bytes from{write.from.slot.slab, write.from.offset};
    const Bytes to = on_disk(write.to, shape);
    EXPECT_LE(to.from + slot_bytes(shape), store_->disk().slots().slab_bytes());
    Content& content = memory_.at(from);
    EXPECT_EQ(content.name, write.block.name);
    EXPECT_EQ(content.digest, write.digest);
    EXPECT_EQ(content.use, Use::kFilled);
    ++content.offers;
    std::erase_if(on_disk_, [&](const auto& other) {
      const auto& [at, stored] = other;
      const bool overlaps = at.slab == to.slab && at.from < to.from + slot_bytes(shape) &&
                            to.from < at.from + slot_bytes(stored.block.shape);
      EXPECT_FALSE(overlaps && (stored.readers > 0 || !stored.written)) << "in use";
      return overlaps;
    });
    on_disk_[to] = {
        .block = {.block = write.block, .shape = shape, .digest = write.digest, .slot = write.to},
        .digest = write.digest};
    EXPECT_TRUE(writes_.emplace(write.block.name, Moved{from, to}).second);
  }
  static Bytes on_disk(SlotId slot, const BlockShape& shape) {
    return {slot.slab, slot.index * slot_bytes(shape)};
  }

  void overwrite(Bytes at, uint64_t bytes) {
    for (auto other = memory_.begin(); other != memory_.end();) {
      const Content& content = other->second;
      const bool overlaps = other->first.slab == at.slab && other->first.from < at.from + bytes &&
                            at.from < other->first.from + content.bytes;
      if (!overlaps) {
        ++other;
        continue;
      }
      EXPECT_EQ(content.use, Use::kFilled) << "a slot is written by two fetches";
      EXPECT_EQ(content.offers, 0) << "an offered block is overwritten";
      dropped_.erase(other->first);
      other = memory_.erase(other);
    }
  }

  template <class Map>
  typename Map::iterator any(Map& map) {
    return std::next(map.begin(), static_cast<ptrdiff_t>(random_.below(map.size())));
  }

  void check_bounds() {
    EXPECT_LE(store_->slots().bytes_used(), options_.memory_bytes);
    EXPECT_LE(fetches_.size(), options_.fetches_max);
    EXPECT_EQ(store_->fetches(), fetches_.size());
    EXPECT_LE(store_->queued(), options_.queued_max);
    EXPECT_LE(offers_.size(), options_.offers_max);
    EXPECT_EQ(store_->offers(), offers_.size() + waiting_.size());
    EXPECT_LE(store_->disk().slots().bytes_used(), options_.disk_bytes);
    EXPECT_LE(writes_.size(), options_.writes_max);
  }

  // All transfers end. Then there is room for each new block, and each old one goes in the end.
  void finish() {
    while (!fetches_.empty() || !retired_.empty() || !offers_.empty() || !reads_.empty() ||
           !writes_.empty()) {
      end_fetch();
      release();
      end_offer();
      end_read();
      end_write();
    }
    EXPECT_EQ(store_->queued(), 0U);
    const uint64_t no_room = store_->counts().no_room;
    for (uint64_t block = 0; block < 1000 * models_ && !testing::Test::HasFailure(); ++block) {
      put({.high = 100 + block / 1000, .low = block}, shape_of(block / 1000));
    }
    EXPECT_EQ(store_->counts().no_room, no_room);
    for (const auto& [name, id] : last_id_) {
      const BlockShape shape = shape_of(name.high);
      asked_ = {{id, name}};
      step(BlocksTold{.peer = "peer",
                      .news = {.kind = BlockNews::Kind::kWanted,
                               .rows = shape.rows,
                               .row_bytes = shape.row_bytes,
                               .blocks = {{.name = name, .transfer = id}}}});
    }
    EXPECT_TRUE(offers_.empty() && reads_.empty()) << "a block was never evicted";
    EXPECT_TRUE(options_.disk_bytes == 0 || (restored_ > 0 && reads_seen_ > 0));
    EXPECT_GT(fetches_seen_, 500U);
    EXPECT_GT(store_->counts().tokens_given, 0U);
  }

  void put(BlockName name, const BlockShape& shape) {
    BlockNews news{
        .kind = BlockNews::Kind::kHeld, .rows = shape.rows, .row_bytes = shape.row_bytes};
    news.blocks.push_back({.name = name, .transfer = next_id()});
    note(news);
    step(BlocksTold{.peer = "peer", .news = std::move(news)});
    while (!fetches_.empty()) {
      const auto [id, at] = *fetches_.begin();
      fetches_.erase(fetches_.begin());
      memory_.at(at).use = Use::kFilled;
      step(FetchDone{.id = id, .rows = 16});
    }
    while (!writes_.empty()) {
      end_write();
    }
  }

  void note(const BlockNews& news) {
    for (const auto& block : news.blocks) {
      names_.try_emplace(block.transfer, block.name);
    }
  }

  Random random_;
  const uint64_t models_;
  const BlockStoreOptions options_;
  std::optional<BlockStore> store_;
  uint64_t transfers_ = 0;
  uint64_t fetches_seen_ = 0;
  uint64_t restored_ = 0;
  uint64_t reads_seen_ = 0;
  bool refused_ = false;
  std::map<TransferId, BlockName> asked_;
  std::map<TransferId, BlockName> waiting_;
  std::map<TransferId, BlockName> names_;
  std::map<BlockName, TransferId> last_id_;
  std::map<TransferId, Bytes> fetches_, retired_, offers_;
  std::map<BlockName, Moved> reads_, writes_;
  std::map<Bytes, Content> memory_;
  std::map<Bytes, Stored> on_disk_;
  std::set<Bytes> dropped_;
};

TEST(BlockStoreChance, NoSlotIsUsedTwiceAndEachTransferIsAnsweredOnce) {
  for (uint64_t seed = 1; seed <= 12 && !HasFailure(); ++seed) {
    SCOPED_TRACE(seed);
    Random random(seed);
    ChanceStory story(seed, 1 + seed % 3,
                      {.memory_bytes = 4096 * (1 + random.below(6)),
                       .disk_bytes = seed % 4 == 0 ? 0 : 4096 * (1 + random.below(20)),
                       .fetches_max = 1 + random.below(8),
                       .queued_max = 1 + random.below(20),
                       .offers_max = 1 + random.below(20),
                       .disk_rest = Duration::zero()});
    story.run(1500);
  }
}

}  // namespace
}  // namespace pdjob::store
