#include "store/block_store.h"

#include <gtest/gtest.h>

#include "tests/unit/store/store_story.h"

namespace pdjob::store {
namespace {

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

TEST(BlockStoreQueue, AHolderThatIsSilentCostsOneTimeoutHoweverLongItsList) {
  StoreStory story{{.memory_bytes = 8192, .fetches_max = 2}};
  EXPECT_EQ(story.held({1, 2, 3, 4, 5, 6}).size(), 2U);
  story.held({11});
  EXPECT_EQ(story.fetch_failed(1), Words{"fetch 7 to 0.0"}) << "not block 3";
  EXPECT_EQ(story.store.queued(), 0U);
  EXPECT_EQ(story.store.counts().useless, 4U);
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
  EXPECT_EQ(story.store.memory().evicted(), 1U);
}

TEST_F(BlockStoreTest, EachOwnerKeepsItsShareHoweverMuchAnotherHolds) {
  story.put({1, 2});
  story.owner = BlockOwner{7};
  for (uint64_t block = 100; block < 120; ++block) {
    story.put({block});
  }
  EXPECT_EQ(story.has({1, 2, 117, 118, 119}), (Blocks{1, 2, 118, 119}));
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
