#include "store/block_store.h"

#include <map>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

namespace pdjob::store {
namespace {

using kvtransfer::BlockNews;
using kvtransfer::BlocksTold;
using kvtransfer::FetchDone;
using kvtransfer::FetchFailed;
using kvtransfer::FetchReleased;
using kvtransfer::NamedBlock;
using kvtransfer::OfferDone;
using kvtransfer::OfferFailed;

const BlockShape kShape{.rows = 64, .row_bytes = {8, 8}};    // 1024 bytes
const BlockShape kOther{.rows = 64, .row_bytes = {16, 16}};  // 2048 bytes

TransferId transfer(uint64_t number) { return {.high = 7, .low = number}; }
BlockName name(uint64_t number) { return {.high = 3, .low = number}; }
uint64_t digest_of(uint64_t block) { return 1000 + block; }

// A store whose endpoint is the test: it says what happens to transfers. Transfers count from 1.
class StoreStory {
 public:
  using Words = std::vector<std::string>;

  explicit StoreStory(const BlockStoreOptions& options) : store(options) {}

  Words wanted(const std::vector<uint64_t>& blocks, const BlockShape& shape = kShape) {
    return tell(BlockNews::Kind::kWanted, blocks, shape);
  }
  Words held(const std::vector<uint64_t>& blocks, const BlockShape& shape = kShape) {
    return tell(BlockNews::Kind::kHeld, blocks, shape);
  }
  Words held_behind(uint64_t before, const std::vector<uint64_t>& blocks) {
    return tell(BlockNews::Kind::kHeld, blocks, kShape, name(before));
  }
  Words fetched(uint64_t id) {
    return step(
        FetchDone{.id = transfer(id), .rows = kShape.rows, .digest = digest_of(block_of_.at(id))});
  }
  Words fetch_failed(uint64_t id, bool safe = true) {
    return step(FetchFailed{
        .id = transfer(id), .error = {ErrorCode::kPeerFailed, "gone"}, .region_safe = safe});
  }
  Words released(uint64_t id) { return step(FetchReleased{transfer(id)}); }
  Words offered(uint64_t id) { return step(OfferDone{.id = transfer(id)}); }
  Words offer_failed(uint64_t id, bool rows_damaged) {
    return step(OfferFailed{
        .id = transfer(id), .error = {ErrorCode::kCorrupt, "why"}, .rows_damaged = rows_damaged});
  }
  Words drain() { return step(DrainAsked{}); }
  Words read(uint64_t block, bool ok = true) { return step(BlockRead{name(block), ok}); }
  Words written(uint64_t block, bool ok = true) { return step(BlockWritten{name(block), ok}); }

  // The store has these blocks afterwards, if it has room.
  void put(const std::vector<uint64_t>& blocks, const BlockShape& shape = kShape) {
    const uint64_t first = transfers_ + 1;
    held(blocks, shape);
    for (uint64_t id = first; id <= transfers_; ++id) {
      fetched(id);
    }
  }
  // Uses the blocks once.
  void use(const std::vector<uint64_t>& blocks, const BlockShape& shape = kShape) {
    const uint64_t first = transfers_ + 1;
    wanted(blocks, shape);
    for (uint64_t id = first; id <= transfers_; ++id) {
      offered(id);
    }
  }
  // Which of the blocks could be used alone.
  std::vector<uint64_t> has(const std::vector<uint64_t>& blocks, const BlockShape& shape = kShape) {
    std::vector<uint64_t> present;
    for (const uint64_t block : blocks) {
      const uint64_t id = transfers_ + 1;
      if (wanted({block}, shape).front().starts_with("offer")) {
        present.push_back(block);
        offered(id);
      }
    }
    return present;
  }
  uint64_t last() const { return transfers_; }

  BlockStore store;
  Instant now{};

 private:
  Words tell(BlockNews::Kind kind, const std::vector<uint64_t>& blocks, const BlockShape& shape,
             BlockName before = {}) {
    BlockNews news{
        .kind = kind, .rows = shape.rows, .row_bytes = shape.row_bytes, .before = before};
    for (const uint64_t block : blocks) {
      block_of_[++transfers_] = block;
      news.blocks.push_back({.name = name(block), .transfer = transfer(transfers_)});
    }
    return step(BlocksTold{.peer = "peer", .news = std::move(news)});
  }
  Words step(const Event& event) {
    std::vector<Effect> effects;
    store.step(event, now, effects);
    Words words;
    for (const Effect& effect : effects) {
      words.push_back(std::visit([](const auto& each) { return word(each); }, effect));
    }
    return words;
  }
  static std::string word(const Offer& offer) {
    return "offer " + std::to_string(offer.id.low) + " digest " + std::to_string(offer.digest);
  }
  static std::string word(const Refuse& refuse) {
    return "refuse " + std::to_string(refuse.id.low) + ' ' + to_string(refuse.reason.code);
  }
  static std::string word(const Fetch& fetch) {
    return "fetch " + std::to_string(fetch.id.low) + " to " + at(fetch.place.slot);
  }
  static std::string word(const BlockCorrupt& block) {
    return "corrupt " + std::to_string(block.name.low);
  }
  static std::string word(const Read& read) {
    return "read " + std::to_string(read.name.low) + " to " + at(read.to.slot);
  }
  static std::string word(const Write& write) {
    return "write " + std::to_string(write.block.name.low) + " to " + at(write.to);
  }
  static std::string at(SlotId slot) {
    return std::to_string(slot.slab) + '.' + std::to_string(slot.index);
  }

  uint64_t transfers_ = 0;
  std::map<uint64_t, uint64_t> block_of_;
};
using Words = StoreStory::Words;
using Blocks = std::vector<uint64_t>;

struct BlockStoreTest : testing::Test {
  StoreStory story{{.memory_bytes = 4096, .fetches_max = 8, .queued_max = 8, .offers_max = 8}};
  const StoreCounts& counts = story.store.counts();
};

TEST_F(BlockStoreTest, FetchesWhatAPeerHoldsAndOffersItWithItsDigest) {
  EXPECT_EQ(story.held({1, 2}), (Words{"fetch 1 to 0.0", "fetch 2 to 0.1"}));
  EXPECT_EQ(story.fetched(1), Words{});
  EXPECT_EQ(story.fetched(2), Words{});
  EXPECT_EQ(story.wanted({1, 2}), (Words{"offer 3 digest 1001", "offer 4 digest 1002"}));
  EXPECT_EQ(counts.taken, 2U);
  EXPECT_EQ(counts.tokens_wanted, 128U);
  EXPECT_EQ(counts.tokens_given, 128U);
}

TEST_F(BlockStoreTest, RefusesAMissingBlockAndAllBehindIt) {
  story.put({1, 2});
  story.put({1, 2, 3});
  EXPECT_EQ(story.wanted({1, 9, 3}),
            (Words{"offer 6 digest 1001", "refuse 7 not_found", "refuse 8 not_found"}));
  EXPECT_EQ(counts.tokens_wanted, 192U);
  EXPECT_EQ(counts.tokens_given, 64U);
}

TEST_F(BlockStoreTest, RefusesABlockOfAnotherShape) {
  story.put({1});
  EXPECT_EQ(story.wanted({1}, kOther), Words{"refuse 2 not_found"});
}

TEST_F(BlockStoreTest, RefusesABlockThatIsStillBeingFetched) {
  story.held({1});
  EXPECT_EQ(story.wanted({1}), Words{"refuse 2 not_found"});
}

TEST_F(BlockStoreTest, FetchesNoBlockTwice) {
  story.held({1, 2});
  EXPECT_EQ(story.held({1, 2, 3}), Words{"fetch 5 to 0.2"});
  story.fetched(1);
  EXPECT_EQ(story.held({1, 2}), Words{});
}

TEST_F(BlockStoreTest, FetchesAFailedBlockWhenItIsToldAgain) {
  story.held({1});
  EXPECT_EQ(story.fetch_failed(1), Words{});
  EXPECT_EQ(story.held({1}), Words{"fetch 2 to 0.0"});
  EXPECT_EQ(counts.fetches_failed, 1U);
}

TEST_F(BlockStoreTest, KeepsNoBlockOfWhichFewerRowsCame) {
  story.held({1}, {.rows = 32, .row_bytes = {8}});
  story.fetched(1);  // kShape.rows
  EXPECT_EQ(story.store.blocks(), 0U);
  EXPECT_EQ(story.store.slots().bytes_used(), 0U);
  EXPECT_EQ(counts.fetches_failed, 1U);
}

TEST(BlockStoreQueue, FetchesFewBlocksAtOnceAndTheOthersInTheirOrder) {
  StoreStory story{{.memory_bytes = 4096, .fetches_max = 1, .queued_max = 2}};
  EXPECT_EQ(story.held({1, 2, 3}), Words{"fetch 1 to 0.0"});
  EXPECT_EQ(story.store.queued(), 1U);
  EXPECT_EQ(story.store.counts().too_many, 1U);
  EXPECT_EQ(story.fetched(1), Words{"fetch 2 to 0.1"});
}

TEST(BlockStoreQueue, SkipsWhatIsBehindAFailedBlock) {
  StoreStory story{{.memory_bytes = 4096, .fetches_max = 1}};
  story.held({1, 2, 3});
  EXPECT_EQ(story.held({7}), Words{});
  EXPECT_EQ(story.fetch_failed(1), Words{"fetch 4 to 0.0"});
  EXPECT_EQ(story.store.counts().useless, 2U);
  EXPECT_EQ(story.held({1, 2}), Words{});
  EXPECT_EQ(story.fetched(4), Words{"fetch 5 to 0.1"});
}

TEST_F(BlockStoreTest, ASlotWhoseFetchWasUnsafeIsUsedOnlyAfterItsRelease) {
  story.held({1});
  story.fetch_failed(1, false);
  story.put({2, 3, 4});
  EXPECT_EQ(story.held({1}), Words{"fetch 5 to 0.3"});  // Block 4 went.
  story.fetch_failed(5);
  story.released(1);
  EXPECT_EQ(story.held({5}), Words{"fetch 6 to 0.0"});
}

TEST_F(BlockStoreTest, ALaterListGoesOnWhereAnEarlierOneEnded) {
  story.held({1});
  EXPECT_EQ(story.held_behind(1, {2}), Words{"fetch 2 to 0.1"});
  story.fetched(1);
  story.fetched(2);
  EXPECT_EQ(story.held_behind(2, {3}), Words{"fetch 3 to 0.2"});
  story.fetched(3);
  EXPECT_EQ(story.wanted({1, 2, 3}).back(), "offer 6 digest 1003");
}

TEST_F(BlockStoreTest, FetchesNothingBehindABlockThatItLacks) {
  EXPECT_EQ(story.held_behind(1, {2, 3}), Words{});
  EXPECT_EQ(counts.useless, 2U);
}

// --- eviction

TEST_F(BlockStoreTest, EvictsTheEndOfAChainBeforeItsBeginning) {
  story.put({1, 2, 3, 4});
  story.put({10});
  EXPECT_EQ(story.has({1, 2, 3, 4, 10}), (Blocks{1, 2, 3, 10}));
  EXPECT_EQ(story.store.evicted(), 1U);
}

TEST_F(BlockStoreTest, EvictsWhatIsUsedLeast) {
  story.put({1});
  story.put({2});
  story.put({3});
  story.put({4});
  story.use({1});
  story.use({2});
  story.use({4});
  story.put({10});
  EXPECT_EQ(story.has({1, 2, 3, 4, 10}), (Blocks{1, 2, 4, 10}));
}

TEST_F(BlockStoreTest, EvictsWhatWasUsedLongAgoInTheEnd) {
  story.put({1});
  story.use({1});
  story.use({1});
  for (uint64_t block = 100; block < 130; ++block) {
    story.put({block});
  }
  EXPECT_EQ(story.has({1}), Blocks{});
}

TEST_F(BlockStoreTest, EvictsTheBlockThatIsCheaperToCompute) {
  story.put({1, 2, 3});
  story.put({4});
  story.put({10});
  EXPECT_EQ(story.has({1, 2, 3, 4}), (Blocks{1, 2, 3}));
}

TEST_F(BlockStoreTest, AnOfferedBlockSurvivesAnyPressure) {
  story.put({1});
  story.put({2});
  story.put({3});
  story.put({4});
  story.wanted({1});
  const uint64_t offer = story.last();
  for (uint64_t block = 100; block < 200; ++block) {
    story.put({block});
  }
  EXPECT_EQ(story.has({1}), Blocks{1});
  story.offered(offer);
  for (uint64_t block = 200; block < 300; ++block) {
    story.put({block});
  }
  EXPECT_EQ(story.has({1}), Blocks{});
}

TEST_F(BlockStoreTest, AChainThatFillsTheMemoryKeepsItsBeginning) {
  EXPECT_EQ(story.held({1, 2, 3, 4, 5, 6}).size(), 4U);
  EXPECT_EQ(counts.no_room, 1U);
  EXPECT_EQ(counts.useless, 1U);
  for (uint64_t id = 1; id <= 4; ++id) {
    story.fetched(id);
  }
  EXPECT_EQ(story.has({1, 2, 3, 4, 5, 6}), (Blocks{1, 2, 3, 4}));
}

TEST_F(BlockStoreTest, AChainNeverEvictsItsOwnBeginning) {
  story.put({1, 2, 3, 4});
  EXPECT_EQ(story.held({1, 2, 3, 4, 5}), Words{});
  EXPECT_EQ(counts.no_room, 1U);
}

TEST_F(BlockStoreTest, RefusesToKeepABlockThatNoSlabHolds) {
  EXPECT_EQ(story.held({1}, {.rows = 64, .row_bytes = {65}}), Words{});
  EXPECT_EQ(story.held({1}, {.rows = 0, .row_bytes = {}}), Words{});
  EXPECT_EQ(counts.no_room, 2U);
}

TEST(BlockStoreShapes, TwoShapesShareTheMemory) {
  StoreStory story{{.memory_bytes = 8192}};  // Two slabs.
  story.put({1, 2}, kOther);
  story.put({10, 11});
  EXPECT_EQ(story.has({1, 2}, kOther), (Blocks{1, 2}));
  EXPECT_EQ(story.has({10, 11}), (Blocks{10, 11}));
  EXPECT_EQ(story.store.slots().bytes_used(), 6144U);
}

TEST(BlockStoreShapes, AShapeWithoutMemoryGetsTheLeastUsedSlabOfAnother) {
  StoreStory story{{.memory_bytes = 8192}};
  story.put({1});
  story.use({1});
  for (const uint64_t block : {2, 3, 4, 5, 6, 7, 8}) {
    story.put({block});
  }
  EXPECT_EQ(story.held({20}, kOther), Words{"fetch 10 to 1.0"});
  EXPECT_EQ(story.has({1, 2, 3, 4, 5, 6, 7, 8}), (Blocks{1, 2, 3, 4}));
}

TEST(BlockStoreShapes, AShapeThatIsUsedNoMoreLosesItsSlabs) {
  StoreStory story{{.memory_bytes = 8192}};
  story.put({1, 2, 3, 4, 5});
  for (uint64_t block = 100; block < 200; ++block) {
    story.put({block}, kOther);
  }
  EXPECT_EQ(story.has({1, 2, 3, 4, 5}), Blocks{});
  EXPECT_EQ(story.store.slots().bytes_used(), 8192U);
}

TEST(BlockStoreShapes, ASlabWithAnOfferedBlockIsNotTaken) {
  StoreStory story{{.memory_bytes = 4096}};
  story.put({1});
  story.wanted({1});
  EXPECT_EQ(story.held({20}, kOther), Words{});
  EXPECT_EQ(story.store.counts().no_room, 1U);
  story.offered(2);
  EXPECT_EQ(story.held({20}, kOther), Words{"fetch 4 to 0.0"});
}

TEST(BlockStoreShapes, BlocksOfMoreShapesThanBoundedAreNotKept) {
  StoreStory story{{.memory_bytes = 8192, .shapes_max = 1}};
  story.put({1});
  EXPECT_EQ(story.held({2}, kOther), Words{});
  EXPECT_EQ(story.store.counts().no_room, 1U);
}

// --- corrupt blocks

TEST_F(BlockStoreTest, ACorruptBlockIsDroppedAndFetchedAgain) {
  story.put({1, 2});
  story.wanted({1});
  EXPECT_EQ(story.offer_failed(3, true), Words{"corrupt 1"});
  EXPECT_EQ(story.wanted({1, 2}), (Words{"refuse 4 not_found", "refuse 5 not_found"}));
  EXPECT_EQ(story.held({1, 2}), Words{"fetch 6 to 0.0"});
  story.fetched(6);
  EXPECT_EQ(story.has({1, 2}), (Blocks{1, 2}));
  EXPECT_EQ(counts.corrupt, 1U);
}

TEST_F(BlockStoreTest, TheSlotOfACorruptBlockIsUsedAfterItsLastOffer) {
  story.put({1});
  story.wanted({1});
  story.wanted({1});
  EXPECT_EQ(story.offer_failed(2, true), Words{"corrupt 1"});
  EXPECT_EQ(story.held({1}), Words{"fetch 4 to 0.1"});
  EXPECT_EQ(story.offer_failed(3, true), Words{});
  EXPECT_EQ(story.held({2}), Words{"fetch 5 to 0.0"});
  EXPECT_EQ(counts.corrupt, 1U);
}

TEST_F(BlockStoreTest, ABlockStaysIfItsOfferFailsOtherwiseWhateverThePeerSays) {
  story.put({1});
  story.wanted({1});
  EXPECT_EQ(story.offer_failed(2, false), Words{});
  EXPECT_EQ(story.has({1}), Blocks{1});
}

// --- peers that are wrong

TEST_F(BlockStoreTest, ATransferThatIsOfferedIsNotAnsweredTwice) {
  story.put({1});
  std::vector<Effect> effects;
  const BlocksTold twice{.peer = "peer",
                         .news = {.kind = BlockNews::Kind::kWanted,
                                  .rows = kShape.rows,
                                  .row_bytes = kShape.row_bytes,
                                  .blocks = {{name(1), transfer(50)}, {name(1), transfer(50)}}}};
  story.store.step(twice, Instant(), effects);
  EXPECT_EQ(effects.size(), 1U);
}

TEST_F(BlockStoreTest, AnIdThatIsFetchedAlreadyIsNotFetchedAgain) {
  std::vector<Effect> effects;
  const BlocksTold twice{.peer = "peer",
                         .news = {.kind = BlockNews::Kind::kHeld,
                                  .rows = kShape.rows,
                                  .row_bytes = kShape.row_bytes,
                                  .blocks = {{name(1), transfer(50)}, {name(2), transfer(50)}}}};
  story.store.step(twice, Instant(), effects);
  EXPECT_EQ(effects.size(), 1U);
  EXPECT_EQ(counts.useless, 1U);
}

TEST_F(BlockStoreTest, BlocksThatFollowEachOtherInACircleAreStillEvicted) {
  story.put({1, 2});
  story.wanted({1});
  story.offer_failed(3, true);
  story.put({2, 1});
  for (uint64_t block = 100; block < 120; ++block) {
    story.put({block});
  }
  EXPECT_EQ(story.has({1, 2}), Blocks{});
}

TEST_F(BlockStoreTest, ABlockThatIsToldTwiceInOneListIsFetchedOnce) {
  EXPECT_EQ(story.held({1, 1, 2}), (Words{"fetch 1 to 0.0", "fetch 3 to 0.1"}));
}

TEST_F(BlockStoreTest, RefusesOffersBeyondTheBound) {
  story.put({1});
  for (int offer = 0; offer < 8; ++offer) {
    EXPECT_TRUE(story.wanted({1}).front().starts_with("offer"));
  }
  EXPECT_EQ(story.wanted({1}), Words{"refuse 10 overloaded"});
}

// --- the disk

struct BlockStoreDisk : testing::Test {
  // Four blocks in memory, eight on disk.
  StoreStory story{{.memory_bytes = 4096, .disk_bytes = 8192, .fetches_max = 8, .offers_max = 8}};
  const StoreCounts& counts = story.store.counts();

  void put_and_write(const Blocks& blocks) {
    story.put(blocks);
    for (const uint64_t block : blocks) {
      story.written(block);
    }
  }
  // A block that only the disk has.
  void move_to_disk(uint64_t block) {
    put_and_write({block});
    for (const uint64_t other : {101, 102, 103, 104}) {
      story.put({other});
      story.written(other);
    }
  }
};

TEST_F(BlockStoreDisk, WritesEachBlockThatCame) {
  story.held({1, 2});
  EXPECT_EQ(story.fetched(1), Words{"write 1 to 0.0"});
  EXPECT_EQ(story.fetched(2), Words{"write 2 to 0.1"});
  EXPECT_EQ(story.written(1), Words{});
  EXPECT_EQ(story.written(2), Words{});
  EXPECT_EQ(story.store.disk().size(), 2U);
  EXPECT_EQ(story.store.unwritten(), 0U);
  EXPECT_EQ(counts.written, 2U);
}

TEST_F(BlockStoreDisk, ReadsABlockThatLeftMemoryAndThenOffersIt) {
  move_to_disk(1);
  EXPECT_EQ(story.wanted({1}), Words{"read 1 to 0.1"});
  EXPECT_EQ(story.store.offers(), 1U);
  EXPECT_EQ(story.read(1), Words{"offer 6 digest 1001"});
  EXPECT_EQ(story.wanted({1}), Words{"offer 7 digest 1001"});
  EXPECT_EQ(counts.read, 1U);
}

TEST_F(BlockStoreDisk, ReadsABlockOnceForAllWhoWaitForIt) {
  move_to_disk(1);
  story.wanted({1});
  EXPECT_EQ(story.wanted({1}), Words{});
  EXPECT_EQ(story.read(1), (Words{"offer 6 digest 1001", "offer 7 digest 1001"}));
}

TEST_F(BlockStoreDisk, RefusesABlockThatCannotBeReadAndForgetsIt) {
  move_to_disk(1);
  story.wanted({1});
  EXPECT_EQ(story.read(1, false), Words{"refuse 6 not_found"});
  EXPECT_EQ(story.wanted({1}), Words{"refuse 7 not_found"});
  EXPECT_EQ(counts.disk_failed, 1U);
  EXPECT_EQ(story.store.slots().bytes_used(), 3072U);
}

TEST_F(BlockStoreDisk, DoesNotFetchABlockThatIsOnDisk) {
  move_to_disk(1);
  EXPECT_EQ(story.held({1}), Words{});
  EXPECT_EQ(story.held_behind(1, {2}), Words{"fetch 7 to 0.1"});
}

TEST_F(BlockStoreDisk, ForgetsABlockWhoseBytesAreCorruptOnDiskToo) {
  move_to_disk(1);
  story.wanted({1});
  story.read(1);
  EXPECT_EQ(story.offer_failed(6, ErrorCode::kCorrupt), Words{"corrupt 1"});
  EXPECT_EQ(story.wanted({1}), Words{"refuse 7 not_found"});
}

TEST_F(BlockStoreDisk, ABlockThatTurnsOutCorruptWhileItIsWrittenIsNotOnDisk) {
  story.put({1});
  story.wanted({1});
  story.offer_failed(2, ErrorCode::kCorrupt);
  story.written(1);
  EXPECT_EQ(story.store.disk().size(), 0U);
  EXPECT_EQ(story.store.slots().bytes_used(), 0U);
}

TEST_F(BlockStoreDisk, AFullDiskForgetsWhatIsWorthLeast) {
  for (uint64_t block = 1; block <= 9; ++block) {
    put_and_write({block});
  }
  EXPECT_EQ(story.store.disk().size(), 8U);
  EXPECT_EQ(story.store.disk().evicted(), 1U);
  EXPECT_EQ(story.wanted({1}), Words{"refuse 10 not_found"});
}

TEST_F(BlockStoreDisk, ADiskThatFailsGetsARest) {
  story.put({1});
  EXPECT_EQ(story.written(1, false), Words{});
  EXPECT_EQ(counts.disk_failed, 1U);
  story.put({2});
  EXPECT_EQ(story.store.unwritten(), 1U);
  story.now += std::chrono::seconds(10);
  EXPECT_EQ(story.held({1}), Words{"write 2 to 0.0"});
}

TEST_F(BlockStoreDisk, ADrainEndsWithTheLastWriteAndDoesNotWaitForARest) {
  story.put({1});
  story.put({2});
  story.drain();
  EXPECT_EQ(story.store.unwritten(), 2U);
  story.written(1);
  EXPECT_EQ(story.store.unwritten(), 1U);
  story.written(2, false);
  EXPECT_EQ(story.store.unwritten(), 0U);
}

TEST_F(BlockStoreDisk, AnotherStoreGoesOnWithWhatIsOnDisk) {
  const auto stored = [](uint64_t block, std::optional<BlockName> parent, uint32_t depth,
                         SlotId slot) {
    return StoredBlock{.block = {.name = name(block), .parent = parent, .depth = depth},
                       .shape = kShape,
                       .digest = digest_of(block),
                       .slot = slot};
  };
  EXPECT_EQ(story.store.restore({
                stored(2, name(1), 1, {0, 1}),
                stored(1, std::nullopt, 0, {1, 3}),
                stored(4, name(3), 1, {0, 2}),       // Nothing is before it.
                stored(5, name(1), 2, {0, 3}),       // It cannot be so deep.
                stored(6, std::nullopt, 0, {1, 3}),  // The slot is taken.
                stored(7, std::nullopt, 0, {2, 0}),  // No such slab.
                stored(2, name(1), 1, {1, 0}),       // It is there.
            }),
            2U);
  EXPECT_EQ(story.wanted({1, 2, 4}),
            (Words{"read 1 to 0.0", "read 2 to 0.1", "refuse 3 not_found"}));
  EXPECT_EQ(story.read(2), Words{"offer 2 digest 1002"});
  EXPECT_EQ(story.read(1), Words{"offer 1 digest 1001"});
}

// --- drain

TEST(BlockStoreDrain, RefusesAndFetchesNothingMore) {
  StoreStory story{{.memory_bytes = 4096, .fetches_max = 1}};
  story.put({1});
  story.wanted({1});
  story.held({2, 3});
  EXPECT_EQ(story.drain(), Words{});
  EXPECT_EQ(story.fetched(3), Words{});
  EXPECT_EQ(story.held({5}), Words{});
  EXPECT_EQ(story.wanted({1}), Words{"refuse 6 unavailable"});
  EXPECT_EQ(story.offered(2), Words{});
}

}  // namespace
}  // namespace pdjob::store
