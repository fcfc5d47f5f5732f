#include "router/prefix_index/token_chains.h"

#include <gtest/gtest.h>

#include "router/prefix_index/prompt_blocks.h"

namespace pdjob::router {
namespace {

using Chain = std::vector<uint64_t>;

TEST(TokenChains, ABlockOfTextHasItsShareOfTheTokens) {
  TokenChains chains(100);
  chains.learn(Chain{1, 2, 3}, 3 * kPromptBlockBytes, Chain{11, 12, 13, 14, 15, 16});
  EXPECT_EQ(chains.chain_of(Chain{1, 2, 3}).tokens, (Chain{11, 12, 13, 14, 15, 16}));
  const TokenChains::Chain begun = chains.chain_of(Chain{1, 2, 9});
  EXPECT_EQ(begun.tokens, (Chain{11, 12, 13, 14}));
  EXPECT_EQ(begun.blocks, 2U);
  EXPECT_EQ(chains.chain_of(Chain{9}).blocks, 0U);
}

TEST(TokenChains, WhatIsNoWholeBlockOfTextHasItsTokensToo) {
  TokenChains chains(100);
  chains.learn(Chain{1}, 2 * kPromptBlockBytes - 1, Chain{11, 12});
  EXPECT_EQ(chains.chain_of(Chain{1}).tokens, Chain{11});
}

TEST(TokenChains, APromptThatBeginsAlikeShowsWhereTheOtherWentTooFar) {
  TokenChains chains(100);
  chains.learn(Chain{1, 2}, 2 * kPromptBlockBytes, Chain{11, 12, 13, 14, 15, 16});
  chains.learn(Chain{1, 3}, 2 * kPromptBlockBytes, Chain{11, 12, 93, 94});
  EXPECT_EQ(chains.chain_of(Chain{1}).tokens, (Chain{11, 12}));
  EXPECT_EQ(chains.chain_of(Chain{1, 3}).tokens, (Chain{11, 12, 93, 94}));
  // The blocks after the common beginning are unknown until they are told again.
  EXPECT_EQ(chains.chain_of(Chain{1, 2}).blocks, 1U);
  chains.learn(Chain{1, 2}, 2 * kPromptBlockBytes, Chain{11, 12, 13, 14, 15, 16});
  EXPECT_EQ(chains.chain_of(Chain{1, 2}).tokens, (Chain{11, 12, 13, 14, 15, 16}));
}

TEST(TokenChains, AnotherTokenizerIsLearntAnew) {
  TokenChains chains(100);
  chains.learn(Chain{1}, kPromptBlockBytes, Chain{11, 12});
  chains.learn(Chain{1}, kPromptBlockBytes, Chain{21, 22, 23});
  EXPECT_EQ(chains.chain_of(Chain{1}).tokens, (Chain{21, 22, 23}));
}

TEST(TokenChains, ForgetsWhatWasUsedLongestAgoAndEndsBeforeBeginnings) {
  TokenChains chains(4);
  chains.learn(Chain{1, 2}, 2 * kPromptBlockBytes, Chain{11, 12});
  chains.learn(Chain{3, 4}, 2 * kPromptBlockBytes, Chain{13, 14});
  chains.touch(Chain{1, 2});
  chains.learn(Chain{5}, kPromptBlockBytes, Chain{15});
  EXPECT_EQ(chains.size(), 4U);
  EXPECT_EQ(chains.chain_of(Chain{3, 4}).blocks, 1U);
  EXPECT_EQ(chains.chain_of(Chain{1, 2}).blocks, 2U);
}

}  // namespace
}  // namespace pdjob::router
