// How owners share a tier. What else an index does is seen through the store (block_store_test.cc).
#include "store/block_index.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <vector>

#include <gtest/gtest.h>

#include "common/random.h"

namespace pdjob::store {
namespace {

constexpr BlockOwner kAlice{1};
constexpr BlockOwner kBob{2};
constexpr BlockOwner kCarol{3};
constexpr ShapeId kSmall{0};  // Four in a slab.
constexpr ShapeId kLarge{1};  // Two.
constexpr uint64_t kSlab = 4096;

// A tier whose blocks come at once. Blocks are numbers.
struct Tier {
  explicit Tier(uint64_t slabs) : index(Slots::of_memory(slabs * kSlab)) {
    index.add_shape(1024);
    index.add_shape(2048);
  }

  bool put(BlockOwner owner, uint64_t number, ShapeId shape = kSmall) {
    const auto slot =
        index.reserve({.name = {.high = 0, .low = number}, .owner = owner, .shape = shape});
    if (slot) {
      index.keep(*slot, 0);
    }
    return slot.has_value();
  }
  // Blocks of numbers that no other block has.
  size_t put_many(BlockOwner owner, uint64_t count, ShapeId shape = kSmall) {
    size_t kept = 0;
    for (uint64_t i = 0; i < count; ++i) {
      kept += put(owner, ++last, shape) ? 1 : 0;
    }
    return kept;
  }
  SlotId slot_of(uint64_t number) const { return *index.find({.high = 0, .low = number}); }
  uint64_t blocks_of(BlockOwner owner) const { return index.bytes_of(owner) / 1024; }

  BlockIndex index;
  uint64_t last = 0;
};

struct Owners : testing::Test {
  Tier tier{4};  // 16 small blocks.
};

TEST_F(Owners, AFloodOfOneLeavesTheShareOfAnother) {
  tier.put_many(kAlice, 8);
  tier.put_many(kBob, 100);
  EXPECT_EQ(tier.blocks_of(kAlice), 8U);
  EXPECT_EQ(tier.blocks_of(kBob), 8U);
}

TEST_F(Owners, WhoComesLateGetsItsShareOfWhoHasMost) {
  tier.put_many(kAlice, 12);
  tier.put_many(kBob, 4);
  tier.put_many(kCarol, 4);
  EXPECT_EQ(tier.blocks_of(kAlice), 8U);
  EXPECT_EQ(tier.blocks_of(kBob), 4U);
  tier.put_many(kCarol, 20);
  EXPECT_EQ(tier.blocks_of(kAlice), 6U);
  EXPECT_EQ(tier.blocks_of(kBob), 4U) << "it is within its share";
  EXPECT_EQ(tier.blocks_of(kCarol), 6U);
}

TEST_F(Owners, WhatOthersDoNotUseIsFree) {
  tier.put_many(kAlice, 2);
  tier.put_many(kBob, 30);
  EXPECT_EQ(tier.blocks_of(kBob), 14U);
}

TEST_F(Owners, AnOwnerAloneUsesEverythingAndOthersAreForgotten) {
  tier.put(kBob, 1000);
  tier.put_many(kAlice, 100);
  EXPECT_EQ(tier.blocks_of(kAlice), 15U);
  EXPECT_EQ(tier.index.owners(), 2U);
  tier.index.drop(tier.slot_of(1000));
  EXPECT_EQ(tier.index.owners(), 1U);
  tier.put_many(kAlice, 1);
  EXPECT_EQ(tier.blocks_of(kAlice), 16U);
  EXPECT_FALSE(tier.index.is_above_share(kAlice));
}

TEST_F(Owners, TheBlockOfAnOwnerThatGoesIsWorthLeast) {
  for (const uint64_t block : {1, 2, 3}) {
    tier.put(kAlice, block);
  }
  tier.put(kBob, 4);
  tier.index.count_use(tier.slot_of(1));
  tier.last = 100;
  tier.put_many(kAlice, 12);
  tier.put(kBob, 5);
  EXPECT_TRUE(tier.index.find({.high = 0, .low = 1}));
  EXPECT_FALSE(tier.index.find({.high = 0, .low = 2}));
  EXPECT_TRUE(tier.index.find({.high = 0, .low = 4}));
}

TEST_F(Owners, BlocksThatComeCount) {
  tier.put_many(kAlice, 8);
  for (uint64_t block = 100; block < 120; ++block) {
    tier.index.reserve({.name = {.high = 0, .low = block}, .owner = kBob, .shape = kSmall});
  }
  EXPECT_EQ(tier.blocks_of(kAlice), 8U);
  EXPECT_EQ(tier.blocks_of(kBob), 8U);
}

TEST_F(Owners, APinnedBlockStaysAlsoIfItsOwnerHasMost) {
  tier.put_many(kAlice, 12);
  tier.put_many(kBob, 4);
  for (uint64_t block = 1; block <= 12; ++block) {
    tier.index.pin(tier.slot_of(block));
  }
  EXPECT_FALSE(tier.put(kCarol, 100)) << "and who is within its share loses nothing";
  EXPECT_EQ(tier.index.owners(), 2U);
  tier.index.unpin(tier.slot_of(7));
  EXPECT_TRUE(tier.put(kCarol, 100));
  EXPECT_EQ(tier.blocks_of(kAlice), 11U);
}

TEST_F(Owners, APeerThatMakesUpOwnersTakesNothingOfWhoIsWithinItsShare) {
  tier.put_many(kAlice, 8);
  for (uint64_t owner = 100; owner < 107; ++owner) {
    tier.put_many(BlockOwner{owner}, 50);
  }
  EXPECT_EQ(tier.index.owners(), 8U);
  EXPECT_EQ(tier.blocks_of(kAlice), 2U);
  tier.put_many(BlockOwner{100}, 1000);
  EXPECT_EQ(tier.blocks_of(kAlice), 2U);
}

TEST_F(Owners, ThereAreNoMoreOwnersThanBlocks) {
  for (uint64_t owner = 1; owner <= 1000; ++owner) {
    EXPECT_TRUE(tier.put(BlockOwner{owner}, owner));
    EXPECT_LE(tier.index.owners(), 16U);
  }
}

// --- shapes

TEST_F(Owners, AFloodInAnotherShapeLeavesTheShareOfAnother) {
  tier.put_many(kAlice, 8);
  tier.put_many(kBob, 100, kLarge);
  EXPECT_EQ(tier.blocks_of(kAlice), 8U);
  EXPECT_EQ(tier.blocks_of(kBob), 8U);
}

TEST_F(Owners, AFloodInBothShapesTakesNoMoreSlabsThanAShareIs) {
  for (int i = 0; i < 8; ++i) {
    tier.put_many(kAlice, 1);
    tier.put_many(kBob, 1);  // In the same slabs.
  }
  for (uint64_t i = 0; i < 1000; ++i) {
    tier.put_many(kBob, 1 + i % 3, i % 2 == 0 ? kLarge : kSmall);
  }
  EXPECT_GE(tier.blocks_of(kAlice), 4U) << "at most the slabs that make Bob's share";
}

TEST_F(Owners, WhoIsWithinItsShareGetsSlabsOfWhoHasMoreHoweverFreshTheyAre) {
  tier.put_many(kAlice, 16);
  for (int i = 0; i < 20; ++i) {
    tier.put_many(kBob, 1, kLarge);
    tier.put_many(kAlice, 10);
  }
  EXPECT_EQ(tier.blocks_of(kAlice), 8U);
  EXPECT_EQ(tier.blocks_of(kBob), 8U);
}

TEST_F(Owners, ASlabOfWhoHasMoreThanItsShareGoesFirst) {
  tier.put_many(kAlice, 4);
  tier.put_many(kBob, 12);
  tier.put_many(kCarol, 2, kLarge);
  EXPECT_EQ(tier.blocks_of(kAlice), 4U) << "although its blocks are older";
  EXPECT_EQ(tier.blocks_of(kBob), 8U);
}

TEST_F(Owners, AnOwnerMayChangeTheShapeOfItsOwnSlabs) {
  tier.put_many(kAlice, 4);
  tier.put_many(kBob, 12);
  EXPECT_EQ(tier.put_many(kBob, 20, kLarge), 20U);
  EXPECT_EQ(tier.blocks_of(kAlice), 4U);
  EXPECT_EQ(tier.blocks_of(kBob), 12U);
}

TEST_F(Owners, WhoHasMoreThanItsShareGivesUpOldBlocksBeforeItGetsASlabOfSeveral) {
  for (uint64_t i = 0; i < 16; ++i) {
    tier.put(i % 4 == 0 ? kAlice : kBob, 100 + i);  // Each slab has one of Alice's.
  }
  EXPECT_EQ(tier.put_many(kBob, 4, kLarge), 0U);
  EXPECT_EQ(tier.blocks_of(kAlice), 4U);
  EXPECT_EQ(tier.blocks_of(kBob), 8U);
  tier.put_many(kBob, 4, kLarge);
  EXPECT_EQ(tier.blocks_of(kAlice), 3U) << "now Bob is within its share";
  EXPECT_GE(tier.index.bytes_of(kBob), 6U * 1024);
}

TEST_F(Owners, AShapeWithoutMemoryGetsASlabOfAnyoneForWhoIsWithinItsShare) {
  for (uint64_t i = 0; i < 16; ++i) {
    tier.put(i % 2 == 0 ? kAlice : kBob, 100 + i);
  }
  EXPECT_TRUE(tier.put(kCarol, 1, kLarge));
  EXPECT_EQ(tier.blocks_of(kAlice), 6U);
  EXPECT_EQ(tier.blocks_of(kBob), 6U);
}

// --- any events

// Random events, against the rules in block_index.h.
class OwnersByChance {
 public:
  OwnersByChance(uint64_t seed, uint64_t slabs, uint32_t shapes)
      : random_(seed), shapes_(shapes), index_(Slots::of_memory(slabs * kSlab)) {
    for (uint32_t shape = 0; shape < shapes; ++shape) {
      index_.add_shape(bytes_of(shape));
    }
  }

  void run(int events) {
    for (int event = 0; event < events && !testing::Test::HasFailure(); ++event) {
      const uint64_t chance = random_.below(10);
      if (chance < 6) {
        reserve();
      } else if (chance < 8) {
        use();
      } else {
        unpin();
      }
      check_bytes();
    }
    EXPECT_GT(taken_of_others_, 5U);
    EXPECT_GT(index_.evicted(), 100U);
  }

 private:
  static uint64_t bytes_of(uint32_t shape) { return shape == 0 ? 1000 : uint64_t{700} * shape; }
  static uint64_t part_of(ShapeId shape) {
    const uint64_t slots = kSlab / bytes_of(shape.value);
    return (kSlab + slots - 1) / slots;
  }

  void reserve() {
    Block block{.name = {.high = 0, .low = ++last_},
                .owner = BlockOwner{random_.below(random_.chance(0.5) ? 1 : 4)},
                .shape = ShapeId{static_cast<uint32_t>(random_.below(shapes_))}};
    if (random_.chance(0.5) && !blocks_.empty()) {
      const Block& before = std::next(blocks_.begin(), random_below(blocks_.size()))->second;
      block.parent = before.name;
      block.depth = before.depth + 1;
      block.owner = before.owner;
      block.shape = before.shape;
    }
    // As they are once the new block counts.
    std::map<BlockOwner, uint64_t> bytes = bytes_;
    bytes[block.owner] += part_of(block.shape);
    const auto above = [&](BlockOwner owner) {
      return bytes.at(owner) * bytes.size() > index_.slots().bytes_max();
    };
    const auto slot = index_.reserve(block);
    if (slot) {
      index_.keep(*slot, 0);
      bytes_ = bytes;
    } else {
      check_refusal(block, above);
    }
    for (auto each = blocks_.begin(); each != blocks_.end();) {
      const Block& old = each->second;
      if (index_.find(old.name)) {
        ++each;
        continue;
      }
      if (old.owner != block.owner) {
        ++taken_of_others_;
        const bool of_a_slab = old.shape != block.shape && !above(block.owner);
        EXPECT_TRUE(above(old.owner) || of_a_slab) << "an owner within its share lost a block";
      }
      EXPECT_FALSE(pinned_.contains(old.name));
      remove_bytes(old);
      each = blocks_.erase(each);
    }
    if (slot) {
      blocks_.emplace(block.name, block);
    }
  }

  // It had nothing to evict, and nobody else had more than its share.
  template <class Above>
  void check_refusal(const Block& block, Above above) {
    std::set<BlockName> before;
    for (const auto& [name, other] : blocks_) {
      if (other.parent) {
        before.insert(*other.parent);
      }
    }
    if (block.parent) {
      before.insert(*block.parent);
    }
    for (const auto& [name, other] : blocks_) {
      const bool may_go = !pinned_.contains(name) && !before.contains(name);
      EXPECT_FALSE(may_go && other.shape == block.shape && other.owner == block.owner);
    }
    EXPECT_TRUE(above(block.owner) || !pinned_.empty() || block.parent) << "refused without need";
  }

  void use() {
    if (blocks_.empty()) {
      return;
    }
    const Block& block = std::next(blocks_.begin(), random_below(blocks_.size()))->second;
    const SlotId slot = *index_.find(block.name);
    if (random_.chance(0.5)) {
      index_.count_use(slot);
    } else if (pinned_.size() < 3 && !pinned_.contains(block.name)) {
      index_.pin(slot);
      pinned_.insert(block.name);
    } else if (!pinned_.contains(block.name) && random_.chance(0.2)) {
      index_.drop(slot);
      remove_bytes(block);
      blocks_.erase(block.name);
    }
  }

  void unpin() {
    if (!pinned_.empty()) {
      index_.unpin(*index_.find(*pinned_.begin()));
      pinned_.erase(pinned_.begin());
    }
  }

  void remove_bytes(const Block& block) {
    bytes_.at(block.owner) -= part_of(block.shape);
    if (bytes_.at(block.owner) == 0) {
      bytes_.erase(block.owner);
    }
  }

  void check_bytes() {
    EXPECT_EQ(index_.size(), blocks_.size());
    EXPECT_EQ(index_.owners(), bytes_.size());
    for (const auto& [owner, bytes] : bytes_) {
      EXPECT_EQ(index_.bytes_of(owner), bytes);
    }
  }

  ptrdiff_t random_below(size_t bound) { return static_cast<ptrdiff_t>(random_.below(bound)); }

  Random random_;
  const uint32_t shapes_;
  BlockIndex index_;
  uint64_t last_ = 0;
  uint64_t taken_of_others_ = 0;
  std::map<BlockName, Block> blocks_;
  std::set<BlockName> pinned_;
  std::map<BlockOwner, uint64_t> bytes_;
};

TEST(OwnersByChance, NoOwnerWithinItsShareLosesABlockToOneWithMore) {
  for (uint64_t seed = 1; seed <= 12 && !HasFailure(); ++seed) {
    SCOPED_TRACE(seed);
    OwnersByChance(seed, 1 + seed % 5, 1 + static_cast<uint32_t>(seed % 3)).run(1500);
  }
}

}  // namespace
}  // namespace pdjob::store
