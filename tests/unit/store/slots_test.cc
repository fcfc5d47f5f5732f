#include "store/slots.h"

#include <gtest/gtest.h>

#include "common/limits.h"
#include "store/block_shape.h"

namespace pdjob::store {
namespace {

constexpr uint64_t kSlab = 4096;

struct SlotsTest : testing::Test {
  Slots slots = Slots::of_memory(2 * kSlab);
  ShapeId large = slots.add_shape(2048);
  ShapeId small = slots.add_shape(1000);
};

TEST_F(SlotsTest, TakesEachSlotOnce) {
  EXPECT_EQ(slots.take(large), (SlotId{0, 0}));
  EXPECT_EQ(slots.take(large), (SlotId{0, 1}));
  EXPECT_EQ(slots.take(large), (SlotId{1, 0}));
  EXPECT_EQ(slots.take(large), (SlotId{1, 1}));
  EXPECT_EQ(slots.take(large), std::nullopt);
  EXPECT_EQ(slots.bytes_used(), 2 * kSlab);
  slots.give({1, 0});
  EXPECT_EQ(slots.take(large), (SlotId{1, 0}));
}

TEST_F(SlotsTest, ASlabBelongsToOneShapeUntilItIsEmpty) {
  slots.take(large);
  const SlotId first_small = *slots.take(small);
  EXPECT_EQ(first_small.slab, 1);
  slots.take(large);
  EXPECT_EQ(slots.take(large), std::nullopt);
  slots.give(first_small);
  EXPECT_EQ(slots.owner(1), std::nullopt);
  EXPECT_EQ(slots.take(large), (SlotId{1, 0}));
  EXPECT_EQ(slots.owner(1), large);
}

TEST_F(SlotsTest, SlotsOfASlabDoNotOverlap) {
  for (uint32_t index = 0; index < 4; ++index) {
    EXPECT_EQ(slots.offset(*slots.take(small)), 1000U * index);
  }
  EXPECT_EQ(slots.take(small)->slab, 1);
}

TEST_F(SlotsTest, RefusesAShapeThatIsLargerThanASlab) {
  EXPECT_EQ(slots.take(slots.add_shape(kSlab + 1)), std::nullopt);
  EXPECT_TRUE(slots.take(slots.add_shape(kSlab)));
}

TEST(SlotsSize, HasFewSlabsInAnyMemory) {
  for (uint64_t memory = limits::kMiB; memory < uint64_t{1} << 50; memory *= 3) {
    const Slots slots = Slots::of_memory(memory);
    EXPECT_LE(slots.slabs(), 260U) << memory;
    EXPECT_GE(slots.slabs(), 16U) << memory;
    EXPECT_LE(slots.bytes_max(), memory);
    EXPECT_GE(slots.bytes_max(), memory / 20 * 18);
  }
}

TEST(SlotsSize, TheEndOfASlabBelongsToItsSlots) {
  Slots slots = Slots::of_memory(4096);
  EXPECT_EQ(slots.slab_part(slots.add_shape(1024)), 1024U);
  EXPECT_EQ(slots.slab_part(slots.add_shape(1500)), 2048U);
  EXPECT_EQ(slots.slab_part(slots.add_shape(1300)), 1366U);
}

TEST(BlockShapeTest, WindowsBeginAtMultiplesOfTheAlignment) {
  const BlockShape shape{.rows = 3, .row_bytes = {10, 64, 1}};
  EXPECT_EQ(window_offsets(shape), (std::vector<uint64_t>{0, 64, 256}));
  EXPECT_EQ(slot_bytes(shape), 320U);
}

TEST(BlockShapeTest, AShapeOfNothingOrOfTooMuchIsUnsound) {
  EXPECT_TRUE(is_sound({.rows = 64, .row_bytes = {128}}));
  EXPECT_FALSE(is_sound({.rows = 0, .row_bytes = {128}}));
  EXPECT_FALSE(is_sound({.rows = 64, .row_bytes = {}}));
  EXPECT_FALSE(is_sound({.rows = 64, .row_bytes = {128, 0}}));
  EXPECT_FALSE(is_sound({.rows = 64, .row_bytes = {limits::kTransferRowBytesMax, 1}}));
}

}  // namespace
}  // namespace pdjob::store
