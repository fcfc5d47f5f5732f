#include "router/prefix_index/kv_knowledge.h"

#include <numeric>

#include <gtest/gtest.h>

#include "router/policies/prefix_aware_policy.h"
#include "router/prefix_index/prompt_blocks.h"

namespace pdjob::router {
namespace {

const WorkerId kWorker{0}, kOther{1};
const std::vector<uint64_t> kBlocks = {11, 22, 33, 44};  // Blocks of text, 64 tokens each.
constexpr size_t kBytes = 4 * kPromptBlockBytes;

struct KvKnowledgeTest : testing::Test {
  explicit KvKnowledgeTest(uint32_t blocks_max = 1000)
      : kv({.blocks_max = blocks_max, .texts_max = 1000}), tokens(256) {
    std::iota(tokens.begin(), tokens.end(), 0);
  }

  void store(WorkerId worker, size_t blocks, uint32_t rank = 0) {
    openai::KvBlocksStored stored{.block_size = 16};
    for (size_t block = 0; block < blocks; ++block) {
      stored.hashes.push_back(1000 + block);
    }
    stored.tokens.assign(tokens.begin(), tokens.begin() + static_cast<std::ptrdiff_t>(16 * blocks));
    kv.take(worker, std::vector<openai::KvEvent>{stored}, rank);
  }
  void learn() { kv.learn({.model = "m", .tenant = ""}, kBlocks, kBytes, tokens); }
  uint32_t matched(WorkerId worker, uint32_t sent, const std::vector<uint64_t>& blocks = kBlocks) {
    return kv.matched(blocks, kv.chain_of(blocks), worker, sent);
  }

  KvKnowledge kv;
  std::vector<uint32_t> tokens;
};

TEST_F(KvKnowledgeTest, WhatWasEvictedIsNotThereThoughItWasSent) {
  kv.begin(kWorker, /*complete=*/true);
  learn();
  store(kWorker, 16);
  EXPECT_EQ(matched(kWorker, 4), 4U);
  kv.take(kWorker, std::vector<openai::KvEvent>{openai::KvBlocksRemoved{.hashes = {1008}}});
  EXPECT_EQ(matched(kWorker, 4), 2U);
  kv.take(kWorker, std::vector<openai::KvEvent>{openai::KvBlocksCleared{}});
  EXPECT_EQ(matched(kWorker, 4), 0U);
}

TEST_F(KvKnowledgeTest, WhatAnotherRouterSentIsFound) {
  kv.begin(kWorker, /*complete=*/true);
  learn();
  store(kWorker, 12);
  EXPECT_EQ(matched(kWorker, 0), 3U);
}

TEST_F(KvKnowledgeTest, AnEngineHoldsTheMeanOfWhatItsRanksHold) {
  kv.begin(kWorker, /*complete=*/true, 0);
  kv.begin(kWorker, /*complete=*/false, 1);
  learn();
  EXPECT_FALSE(kv.is_complete(kWorker)) << "one of its ranks is not";
  kv.begin(kWorker, /*complete=*/true, 1);
  EXPECT_TRUE(kv.is_complete(kWorker));
  store(kWorker, 16, 0);
  EXPECT_EQ(matched(kWorker, 4), 2U);
  store(kWorker, 16, 1);
  EXPECT_EQ(matched(kWorker, 4), 4U);
  EXPECT_EQ(kv.held(kWorker), 32U);

  const std::vector<openai::KvEvent> removed{openai::KvBlocksRemoved{.hashes = {1000}}};
  kv.take(kWorker, removed, 0);
  EXPECT_EQ(matched(kWorker, 4), 2U) << "the other rank still has the same block";
  kv.take(kWorker, std::vector<openai::KvEvent>{openai::KvBlocksCleared{}}, 1);
  EXPECT_EQ(matched(kWorker, 4), 0U);
  kv.forget(kWorker);
  EXPECT_EQ(kv.size(), 0U);
  EXPECT_FALSE(kv.listens_to(kWorker));
}

TEST_F(KvKnowledgeTest, WhatIsBeingComputedIsAsGoodAsThere) {
  kv.begin(kWorker, /*complete=*/true);
  learn();
  kv.note_sent(kBlocks, kWorker);
  kv.note_sent(kBlocks, kWorker);
  EXPECT_EQ(matched(kWorker, 4), 4U);
  EXPECT_EQ(matched(kOther, 0), 0U);
  kv.note_ended(kBlocks, kWorker);
  EXPECT_EQ(matched(kWorker, 4), 4U);
  kv.note_ended(kBlocks, kWorker);
  EXPECT_EQ(matched(kWorker, 4), 0U);
}

TEST_F(KvKnowledgeTest, OfAnUnknownTextWhatWasSentCounts) {
  kv.begin(kWorker, /*complete=*/true);
  EXPECT_EQ(matched(kWorker, 3), 3U);
  // The same behind a known beginning, if the worker holds all of that.
  learn();
  store(kWorker, 16);
  const std::vector<uint64_t> longer = {11, 22, 33, 44, 55, 66};
  EXPECT_EQ(matched(kWorker, 6, longer), 6U);
  kv.take(kWorker, std::vector<openai::KvEvent>{openai::KvBlocksRemoved{.hashes = {1015}}});
  EXPECT_EQ(matched(kWorker, 6, longer), 3U);
}

TEST_F(KvKnowledgeTest, OfAnEngineThatIsHeardLateWhatWasSentCountsToo) {
  kv.begin(kWorker, /*complete=*/false);
  learn();
  EXPECT_EQ(matched(kWorker, 2), 2U);
  store(kWorker, 12);
  EXPECT_EQ(matched(kWorker, 2), 3U);
  kv.take(kWorker, std::vector<openai::KvEvent>{openai::KvBlocksCleared{}});
  EXPECT_TRUE(kv.is_complete(kWorker));
  EXPECT_EQ(matched(kWorker, 2), 0U);
}

struct SmallKvKnowledgeTest : KvKnowledgeTest {
  SmallKvKnowledgeTest() : KvKnowledgeTest(8) {}
};

TEST_F(SmallKvKnowledgeTest, OfWhoseBlocksThereWasNoRoomWhatWasSentCountsToo) {
  kv.begin(kWorker, /*complete=*/true);
  learn();
  store(kWorker, 7);
  EXPECT_TRUE(kv.is_complete(kWorker));
  EXPECT_EQ(matched(kWorker, 4), 1U);
  store(kWorker, 16);
  EXPECT_FALSE(kv.is_complete(kWorker));
  EXPECT_EQ(matched(kWorker, 4), 4U);
  kv.take(kWorker, std::vector<openai::KvEvent>{openai::KvBlocksCleared{}});
  EXPECT_TRUE(kv.is_complete(kWorker));
}

TEST_F(KvKnowledgeTest, OfWhoTellsNothingWhatWasSentCounts) {
  learn();
  EXPECT_EQ(matched(kWorker, 2), 2U);
  kv.begin(kWorker, /*complete=*/true);
  EXPECT_EQ(matched(kWorker, 2), 0U);
  kv.forget(kWorker);
  EXPECT_EQ(matched(kWorker, 2), 2U);
}

TEST_F(KvKnowledgeTest, AsksOnceForTheTokensOfAText) {
  EXPECT_FALSE(kv.asks(kBlocks, kWorker));
  kv.begin(kWorker, /*complete=*/false);
  EXPECT_TRUE(kv.asks(kBlocks, kWorker));
  EXPECT_FALSE(kv.asks(kBlocks, kWorker));
  kv.learn({.model = "m", .tenant = ""}, kBlocks, kBytes, {});
  EXPECT_TRUE(kv.asks(kBlocks, kWorker));
  learn();
  EXPECT_FALSE(kv.asks(kBlocks, kWorker));
  EXPECT_FALSE(kv.asks({}, kWorker));
}

TEST_F(KvKnowledgeTest, AModelThatTurnsOutToBeAnAdapterHasOtherBlocks) {
  kv.begin(kWorker, /*complete=*/true);
  learn();
  store(kWorker, 16);
  kv.learn({.model = "sql", .tenant = ""}, std::vector<uint64_t>{77, 88, 99, 111}, kBytes, tokens);
  openai::KvBlocksStored stored{.hashes = {5},
                                .tokens = {tokens.begin(), tokens.begin() + 16},
                                .block_size = 16,
                                .adapter = "sql"};
  kv.take(kWorker, std::vector<openai::KvEvent>{stored});
  EXPECT_EQ(kv.chain_of(kBlocks).blocks, 0U);
  const std::vector<uint64_t> adapters = {77, 88, 99, 111};
  kv.learn({.model = "sql", .tenant = ""}, adapters, kBytes, tokens);
  // One block of tokens is less than a block of text.
  EXPECT_EQ(matched(kWorker, 0, adapters), 0U);
  EXPECT_EQ(kv.chain_of(adapters).blocks, 4U);
}

TEST_F(KvKnowledgeTest, WhatAWorkerKeepsOfOneTenantIsNotThereForAnother) {
  kv.begin(kWorker, /*complete=*/true);
  openai::KvBlocksStored stored{.tokens = tokens, .block_size = 16};
  stored.adapter = openai::tenant_adapter("a");
  for (uint64_t block = 0; block < 16; ++block) {
    stored.hashes.push_back(1000 + block);
  }
  kv.take(kWorker, std::vector<openai::KvEvent>{stored});
  const std::vector<uint64_t> of_b = {77, 88, 99, 111};
  kv.learn({.model = "m", .tenant = "a"}, kBlocks, kBytes, tokens);
  kv.learn({.model = "m", .tenant = "b"}, of_b, kBytes, tokens);
  EXPECT_EQ(matched(kWorker, 0), 4U);
  EXPECT_EQ(matched(kWorker, 0, of_b), 0U);
}

TEST_F(KvKnowledgeTest, ThePolicySendsNothingWhereItWasEvicted) {
  PrefixAwarePolicy policy(1000, &kv);
  Random random(1);
  const PromptFacts prompt{.tokens = 256, .blocks = kBlocks};
  const std::vector<Candidate> candidates = {{.id = kWorker}, {.id = kOther, .load = 10}};
  kv.begin(kWorker, /*complete=*/true);
  kv.begin(kOther, /*complete=*/true);
  learn();
  policy.note_sent(prompt, kWorker);
  store(kWorker, 16);
  policy.note_ended(prompt, kWorker);
  store(kOther, 16);
  EXPECT_EQ(policy.choose(prompt, candidates, random).worker, kWorker);
  kv.take(kWorker, std::vector<openai::KvEvent>{openai::KvBlocksRemoved{.hashes = {1000}}});
  const Chosen chosen = policy.choose(prompt, candidates, random);
  EXPECT_EQ(chosen.worker, kOther);
  EXPECT_EQ(chosen.cached_tokens, 256U);
}

}  // namespace
}  // namespace pdjob::router
