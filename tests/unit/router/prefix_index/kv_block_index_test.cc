#include "router/prefix_index/kv_block_index.h"

#include <numeric>

#include <gtest/gtest.h>

#include "router/prefix_index/prompt_blocks.h"

namespace pdjob::router {
namespace {

const WorkerId kOne{1}, kTwo{2};

std::vector<uint32_t> tokens(uint32_t first, size_t count) {
  std::vector<uint32_t> all(count);
  std::iota(all.begin(), all.end(), first);
  return all;
}

struct KvBlockIndexTest : testing::Test {
  // Returns blocks of 16 tokens. A block's hash is `seed` plus its index.
  openai::KvBlocksStored event(uint64_t seed, size_t first, size_t count) {
    openai::KvBlocksStored stored{.block_size = 16};
    for (size_t block = first; block < first + count; ++block) {
      stored.hashes.push_back(seed + block);
    }
    stored.parent = first == 0 ? std::nullopt : std::optional<uint64_t>(seed + first - 1);
    stored.tokens = tokens(static_cast<uint32_t>(16 * first), 16 * count);
    return stored;
  }
  size_t matched(WorkerId worker) const { return index.matched(prompt, worker).token_blocks; }

  KvBlockIndex index{1000};
  const std::vector<uint64_t> prompt = token_blocks(tokens(0, size_t{16} * 6), 0);
};

TEST_F(KvBlockIndexTest, EnginesThatHashDifferentlyHaveTheSameBlocks) {
  index.stored(kOne, event(100, 0, 4));
  index.stored(kTwo, event(900, 0, 2));
  index.stored(kTwo, event(900, 2, 4));
  EXPECT_EQ(matched(kOne), 4U);
  EXPECT_FALSE(index.matched(prompt, kOne).all);
  EXPECT_EQ(matched(kTwo), 6U);
  EXPECT_TRUE(index.matched(prompt, kTwo).all);
  EXPECT_EQ(index.size(), 10U);
}

TEST_F(KvBlockIndexTest, WhatFollowsARemovedBlockIsGoneWithIt) {
  index.stored(kOne, event(100, 0, 6));
  index.stored(kTwo, event(100, 0, 6));
  index.removed(kOne, {.hashes = {103}});
  EXPECT_EQ(matched(kOne), 3U);
  EXPECT_EQ(index.held(kOne), 3U);
  EXPECT_EQ(matched(kTwo), 6U);
  index.stored(kOne, event(100, 3, 1));
  EXPECT_EQ(matched(kOne), 4U);
}

TEST_F(KvBlockIndexTest, OnlyTheBranchThatWasRemovedIsGone) {
  index.stored(kOne, event(100, 0, 3));
  for (const uint64_t seed : {500, 600, 700}) {
    index.stored(kOne, {.hashes = {seed, seed + 1},
                        .parent = 101,
                        .tokens = tokens(static_cast<uint32_t>(seed), 32),
                        .block_size = 16});
  }
  EXPECT_EQ(index.held(kOne), 9U);
  index.removed(kOne, {.hashes = {600}});
  EXPECT_EQ(index.held(kOne), 7U);
  EXPECT_EQ(matched(kOne), 3U);
  index.removed(kOne, {.hashes = {701, 102, 100}});
  EXPECT_EQ(index.held(kOne), 0U);
  EXPECT_EQ(index.size(), 0U);
}

TEST_F(KvBlockIndexTest, ABlockWhoseBeginningNobodyToldIsLeftOut) {
  index.stored(kOne, event(100, 2, 2));
  EXPECT_EQ(index.size(), 0U);
}

TEST_F(KvBlockIndexTest, BlocksOfSeveralUnitsMatchInWholes) {
  openai::KvBlocksStored stored{.hashes = {1, 2}, .tokens = tokens(0, 64), .block_size = 32};
  index.stored(kOne, stored);
  EXPECT_EQ(matched(kOne), 4U);
  const std::vector<uint64_t> five(prompt.begin(), prompt.begin() + 5);
  EXPECT_TRUE(index.matched(five, kOne).all);  // Half a block cannot be cached.
  EXPECT_FALSE(index.matched(prompt, kOne).all);
  stored = {.hashes = {3}, .parent = 2, .tokens = tokens(64, 16), .block_size = 16};
  index.stored(kOne, stored);  // Its size differs from the worker's other blocks.
  EXPECT_EQ(index.held(kOne), 2U);
}

TEST_F(KvBlockIndexTest, OddBlocksAreNotComparable) {
  index.stored(kOne, {.hashes = {1}, .tokens = tokens(0, 1), .block_size = 1});
  EXPECT_EQ(index.size(), 0U);
}

TEST_F(KvBlockIndexTest, LayersOfAnotherKindSayNothing) {
  index.stored(kOne, event(100, 0, 4));
  openai::KvBlocksStored other = event(100, 4, 1);
  other.group = 1;
  index.stored(kOne, other);
  index.removed(kOne, {.hashes = {101}, .group = 1});
  EXPECT_EQ(index.held(kOne), 4U);
}

TEST_F(KvBlockIndexTest, AnAdaptersBlocksAreItsOwn) {
  EXPECT_EQ(index.root_of("sql", ""), 0U);
  openai::KvBlocksStored stored = event(100, 0, 4);
  stored.adapter = "sql";
  index.stored(kOne, stored);
  EXPECT_EQ(matched(kOne), 0U);
  EXPECT_EQ(index.adapters(), 1U);
  EXPECT_EQ(index.matched(token_blocks(tokens(0, 96), index.root_of("sql", "")), kOne).token_blocks,
            4U);
}

TEST_F(KvBlockIndexTest, AWorkerThatIsGoneLeavesItsRoomToOthers) {
  index.stored(kOne, event(100, 0, 6));
  index.stored(kTwo, event(100, 0, 6));
  index.forget(kOne);
  EXPECT_EQ(matched(kOne), 0U);
  EXPECT_EQ(matched(kTwo), 6U);
  index.clear(kTwo);
  EXPECT_EQ(index.size(), 0U);
}

TEST_F(KvBlockIndexTest, IsBoundedAndNeverSaysMoreThanItWasTold) {
  KvBlockIndex small(3);
  small.stored(kOne, event(100, 0, 6));
  EXPECT_EQ(small.matched(prompt, kOne).token_blocks, 3U);
  small.stored(kTwo, event(100, 0, 6));
  EXPECT_EQ(small.size(), 3U);
  small.removed(kOne, {.hashes = {102}});
  small.stored(kTwo, event(100, 0, 6));
  EXPECT_EQ(small.matched(prompt, kTwo).token_blocks, 1U);
}

}  // namespace
}  // namespace pdjob::router
