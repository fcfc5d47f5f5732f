#include "router/prefix_index/prompt_blocks.h"

#include <algorithm>
#include <string>

#include <gtest/gtest.h>

#include "common/limits.h"

namespace pdjob::router {
namespace {

std::string text_of(size_t bytes, char first = 'a') {
  std::string text(bytes, first);
  for (size_t at = 0; at < bytes; ++at) {
    text[at] = static_cast<char>('a' + (at * 7 + static_cast<size_t>(first)) % 26);
  }
  return text;
}

size_t common_blocks(const std::vector<uint64_t>& a, const std::vector<uint64_t>& b) {
  return static_cast<size_t>(std::mismatch(a.begin(), a.end(), b.begin(), b.end()).first -
                             a.begin());
}

TEST(PromptBlocks, AreAsManyAsTheTextFills) {
  EXPECT_EQ(prompt_blocks("m", text_of(kPromptBlockBytes - 1)).size(), 0U);
  EXPECT_EQ(prompt_blocks("m", text_of(3 * kPromptBlockBytes)).size(), 3U);
  EXPECT_EQ(prompt_blocks("m", text_of((limits::kPromptBlocksMax + 5) * kPromptBlockBytes)).size(),
            limits::kPromptBlocksMax);
}

TEST(PromptBlocks, AreSharedAsFarAsTheTextsAreEqual) {
  std::string text = text_of(8 * kPromptBlockBytes);
  const auto before = prompt_blocks("m", text);
  text[5 * kPromptBlockBytes + 17] ^= 1;
  EXPECT_EQ(common_blocks(before, prompt_blocks("m", text)), 5U);
}

TEST(PromptBlocks, AConversationThatGoesOnSharesItsLastTurns) {
  const std::string first = R"([{"role":"user","content":")" + text_of(4000) + R"("}])";
  const std::string second =
      first.substr(0, first.size() - 1) +
      R"(,{"role":"assistant","content":"Yes."},{"role":"user","content":"Why?"}])";
  const auto blocks = prompt_blocks("m", first);
  EXPECT_EQ(common_blocks(blocks, prompt_blocks("m", second)), blocks.size());
}

TEST(PromptBlocks, DifferentModelsShareNothing) {
  const std::string text = text_of(4 * kPromptBlockBytes);
  EXPECT_EQ(common_blocks(prompt_blocks("m", text), prompt_blocks("n", text)), 0U);
}

TEST(PromptBlocks, PromptsOfDifferentShapeShareNothing) {
  const std::string text = text_of(4 * kPromptBlockBytes);
  EXPECT_EQ(common_blocks(prompt_blocks("m", text), prompt_blocks("m", text, "tools[1]")), 0U);
  EXPECT_EQ(prompt_blocks("m", text), prompt_blocks("m", text, ""));
}

TEST(LeadingBlocks, AreFoundWhereverTheyEndAndNeverLookedForBehindTheEnd) {
  for (size_t count = 0; count <= 40; ++count) {
    for (size_t held = 0; held <= count; ++held) {
      const auto has = [&](size_t block) {
        EXPECT_LT(block, count);
        return block < held;
      };
      EXPECT_EQ(leading_blocks(count, has), held) << "of " << count;
    }
  }
}

TEST(TokenBlocks, AreSharedAsFarAsTheTokensAreEqual) {
  std::vector<uint32_t> tokens(5 * kTokenBlockTokens + 3, 7);
  const auto before = token_blocks(tokens, 0);
  ASSERT_EQ(before.size(), 5U);
  EXPECT_NE(before[0], before[1]);
  tokens[3 * kTokenBlockTokens] = 8;
  EXPECT_EQ(common_blocks(before, token_blocks(tokens, 0)), 3U);
  EXPECT_EQ(common_blocks(before, token_blocks(tokens, 1)), 0U);
}

TEST(TokenBlocks, GoOnBehindTheBlockBefore) {
  const std::vector<uint32_t> tokens(2 * kTokenBlockTokens, 7);
  const auto whole = token_blocks(tokens, 5);
  const auto half = std::span(tokens).first(kTokenBlockTokens);
  EXPECT_EQ(token_blocks(half, whole[0]), std::vector<uint64_t>{whole[1]});
}

}  // namespace
}  // namespace pdjob::router
