#include "worker/blocks/block_names.h"

#include <numeric>

#include <gtest/gtest.h>

#include "worker/blocks/sequence_blocks.h"

namespace pdjob::worker {
namespace {

constexpr SequenceId kFirst{0};
constexpr SequenceId kOther{1};
const std::string kTenant = "alice";

std::vector<Token> tokens(uint32_t count, Token first = 0) {
  std::vector<Token> made(count);
  std::iota(made.begin(), made.end(), first);
  return made;
}

TEST(BlockNames, ANameCoversAllTokensBeforeIt) {
  SequenceBlocks blocks(2, "model");
  std::vector<Token> other = tokens(256);
  other[0] = 7;
  const auto names = blocks.names_of(tokens(256), kTenant);
  const auto others = blocks.names_of(other, kTenant);
  ASSERT_EQ(names.size(), 4U);
  for (size_t i = 0; i < names.size(); ++i) {
    EXPECT_NE(names[i], others[i]) << "block " << i;
  }
}

TEST(BlockNames, PromptsWithTheSameBeginningShareItsBlocksOnly) {
  SequenceBlocks blocks(2, "model");
  std::vector<Token> other = tokens(256);
  other[130] = 7;
  const auto names = blocks.names_of(tokens(256), kTenant);
  const auto others = blocks.names_of(other, kTenant);
  EXPECT_EQ(names[1], others[1]);
  EXPECT_NE(names[2], others[2]);
  EXPECT_NE(names[3], others[3]);
}

TEST(BlockNames, TenantsAndModelsHaveNoNameInCommon) {
  const auto names = [](const char* model, const char* tenant) {
    return SequenceBlocks(1, model).names_of(tokens(64), tenant).front();
  };
  EXPECT_EQ(names("model", "alice"), names("model", "alice"));
  EXPECT_NE(names("model", "alice"), names("model", "bob"));
  EXPECT_NE(names("model", "alice"), names("other", "alice"));
  EXPECT_NE(names("model", "alice"), names("modela", "lice"));
}

TEST(BlockNames, EachTenantIsAnOwnerOfItsOwn) {
  EXPECT_EQ(owner_of("alice"), owner_of("alice"));
  EXPECT_NE(owner_of("alice"), owner_of("bob"));
  EXPECT_NE(owner_of("alice"), owner_of(""));
  EXPECT_EQ(owner_of(""), kvtransfer::BlockOwner{});
}

TEST(SequenceBlocks, TheOwnerIsTheTenantOfTheFirstRows) {
  SequenceBlocks blocks(2, "model");
  const std::string other = "bob";
  blocks.append(kFirst, tokens(128), &kTenant);
  blocks.copy(kFirst, kOther);
  blocks.trim(kFirst, 0);
  blocks.append(kFirst, tokens(128), &other);
  EXPECT_EQ(blocks.owner(kFirst), owner_of(other));
  EXPECT_EQ(blocks.owner(kOther), owner_of(kTenant));
}

TEST(SequenceBlocks, NamesWholeBlocksOfWhatWasComputed) {
  SequenceBlocks blocks(2, "model");
  blocks.append(kFirst, tokens(100), &kTenant);
  EXPECT_EQ(blocks.names(kFirst).size(), 1U);
  blocks.append(kFirst, tokens(28, 100), &kTenant);
  const auto names = blocks.names(kFirst);
  EXPECT_EQ(std::vector(names.begin(), names.end()), blocks.names_of(tokens(128), kTenant));
}

TEST(SequenceBlocks, RowsThatGoTakeTheirNamesAlong) {
  SequenceBlocks blocks(2, "model");
  blocks.append(kFirst, tokens(128), &kTenant);
  const BlockName second = blocks.names(kFirst)[1];
  EXPECT_TRUE(blocks.holds(kFirst, 1, second));
  blocks.trim(kFirst, 127);
  EXPECT_FALSE(blocks.holds(kFirst, 1, second));
  blocks.append(kFirst, tokens(1, 5), &kTenant);
  EXPECT_NE(blocks.names(kFirst)[1], second);
}

TEST(SequenceBlocks, ACopyHasTheSameNames) {
  SequenceBlocks blocks(2, "model");
  blocks.append(kFirst, tokens(128), &kTenant);
  blocks.copy(kFirst, kOther);
  EXPECT_TRUE(blocks.holds(kOther, 1, blocks.names(kFirst)[1]));
}

TEST(SequenceBlocks, RowsOfAPromptThatSharesNothingHaveNoNames) {
  SequenceBlocks blocks(2, "model");
  blocks.append(kFirst, tokens(128), nullptr);
  EXPECT_TRUE(blocks.names(kFirst).empty());
  blocks.trim(kFirst, 0);
  blocks.append(kFirst, tokens(128), &kTenant);
  EXPECT_EQ(blocks.names(kFirst).size(), 2U);
}

}  // namespace
}  // namespace pdjob::worker
