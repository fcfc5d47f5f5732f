// What a store does with the disk behind its memory.
#include <gtest/gtest.h>

#include "tests/unit/store/store_story.h"

namespace pdjob::store {
namespace {

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
  EXPECT_EQ(story.offer_failed(6, true), Words{"corrupt 1"});
  EXPECT_EQ(story.wanted({1}), Words{"refuse 7 not_found"});
}

TEST_F(BlockStoreDisk, ABlockThatTurnsOutCorruptWhileItIsWrittenIsNotOnDisk) {
  story.put({1});
  story.wanted({1});
  story.offer_failed(2, true);
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

TEST_F(BlockStoreDisk, OwnersShareTheDiskTooAndABlockThatIsReadKeepsItsOwner) {
  for (const uint64_t block : {1, 2, 3, 4}) {
    put_and_write({block});
  }
  story.owner = BlockOwner{7};
  for (uint64_t block = 100; block < 120; ++block) {
    put_and_write({block});
  }
  EXPECT_EQ(story.store.disk().bytes_of({}), 4096U);
  EXPECT_EQ(story.store.disk().bytes_of(BlockOwner{7}), 4096U);
  EXPECT_EQ(story.store.memory().bytes_of({}), 2048U);
  EXPECT_EQ(story.wanted({1}).size(), 1U);
  story.read(1);
  EXPECT_EQ(story.store.memory().bytes_of({}), 2048U) << "in the place of another one of its owner";
}

TEST_F(BlockStoreDisk, ReadsNoMoreAtOnceThanItsOwnersShareOfMemory) {
  story.held({1, 2, 3});
  for (const uint64_t block : {1, 2, 3}) {
    story.fetched(block);
    story.written(block);
  }
  story.owner = BlockOwner{7};
  for (const uint64_t block : {101, 102, 103, 104}) {
    put_and_write({block});
  }
  story.owner = BlockOwner{8};
  for (const uint64_t block : {201, 202, 203, 204}) {
    put_and_write({block});
  }
  EXPECT_EQ(story.wanted({1, 2, 3}),
            (Words{"offer 12 digest 1001", "offer 13 digest 1002", "refuse 14 not_found"}))
      << "no worker leaves the store alone for it";
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
    return StoredBlock{
        .block = {.name = name(block), .parent = parent, .owner = BlockOwner{7}, .depth = depth},
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
  EXPECT_EQ(story.store.disk().bytes_of(BlockOwner{7}), 2048U);
  EXPECT_EQ(story.wanted({1, 2, 4}),
            (Words{"read 1 to 0.0", "read 2 to 0.1", "refuse 3 not_found"}));
  EXPECT_EQ(story.read(2), Words{"offer 2 digest 1002"});
  EXPECT_EQ(story.read(1), Words{"offer 1 digest 1001"});
}

}  // namespace
}  // namespace pdjob::store
