#include "launcher/convert/recipe_layout.h"

#include <gtest/gtest.h>

namespace pdjob::launcher {
namespace {

const Hardware& h200() { return *find_hardware("h200"); }
const Hardware& gb200() { return *find_hardware("gb200"); }

TEST(RecipeLayout, ATensorParallelEngineTakesTheFewestNodesThatHoldTheModel) {
  const auto small = fitted_engine(h200(), 8, {.memory_gb = 1128});
  ASSERT_TRUE(small.has_value());
  EXPECT_EQ(small->nodes, 1U);
  EXPECT_EQ(small->sizes.tensor, 8U);
  const auto large = fitted_engine(h200(), 8, {.memory_gb = 1129});
  ASSERT_TRUE(large.has_value());
  EXPECT_EQ(large->nodes, 2U);
  EXPECT_EQ(large->gpus, 16U);
  EXPECT_EQ(large->sizes.tensor, 16U);
}

TEST(RecipeLayout, ADataParallelEngineHasARankForEachGpuOfItsNodes) {
  const auto shape =
      fitted_engine(gb200(), 4, {.mode = PoolMode::kDataExpert, .gpus_min = 16, .memory_gb = 1});
  ASSERT_TRUE(shape.has_value());
  EXPECT_EQ(shape->nodes, 4U);
  EXPECT_EQ(shape->sizes.data, 16U);
  const auto wide =
      fitted_engine(h200(), 8, {.mode = PoolMode::kDataExpert, .sizes = {.tensor = 2}, .nodes = 2});
  ASSERT_TRUE(wide.has_value());
  EXPECT_EQ(wide->sizes.data, 8U);
  EXPECT_EQ(wide->gpus, 16U);
}

TEST(RecipeLayout, ASizeThatTheRecipeNamesIsUsedIfItHoldsTheModel) {
  const auto four = fitted_engine(h200(), 8, {.sizes = {.tensor = 4}, .memory_gb = 500});
  ASSERT_TRUE(four.has_value());
  EXPECT_EQ(four->gpus, 4U);
  EXPECT_TRUE(four->notes.empty());
  const auto more = fitted_engine(h200(), 8, {.sizes = {.tensor = 4}, .memory_gb = 600});
  ASSERT_TRUE(more.has_value());
  EXPECT_EQ(more->gpus, 8U);
  ASSERT_EQ(more->notes.size(), 1U);
  EXPECT_EQ(more->notes[0],
            "would have 4 GPUs of h200 (564 GB) by the recipe's sizes, and needs 5 GPUs of h200 "
            "(705 GB): it gets all GPUs of its nodes");
}

TEST(RecipeLayout, RanksThatDoNotFillANodeAreRefused) {
  const auto shape =
      fitted_engine(gb200(), 4, {.mode = PoolMode::kDataExpert, .sizes = {.tensor = 8}});
  ASSERT_FALSE(shape.has_value());
  EXPECT_EQ(shape.error().message,
            "one of its data-parallel ranks takes 8 GPUs, and the 4 GPUs of a node are no multiple "
            "of that");
  EXPECT_FALSE(fitted_engine(h200(), 8, {.sizes = {.tensor = 12}}).has_value());
  EXPECT_FALSE(fitted_engine(h200(), 8, {.sizes = {.pipeline = 3}}).has_value());
}

TEST(RecipeLayout, NodesThatAreLeftBecomeMoreWorkersOfTheRoleWithFewer) {
  const EngineWish one = {.memory_gb = 1000};
  const EngineWish two = {.memory_gb = 2000};
  const auto layout = layout_of(h200(), 8, one, two);
  ASSERT_TRUE(layout.has_value());
  EXPECT_EQ(layout->prefill_workers, 2U);
  EXPECT_EQ(layout->decode_workers, 3U);
  EXPECT_EQ(layout->nodes, 8U);
  const auto odd = layout_of(h200(), 5, two, two);
  ASSERT_TRUE(odd.has_value());
  EXPECT_EQ(odd->nodes, 4U);
  EXPECT_EQ(odd->prefill_workers + odd->decode_workers, 2U);
}

TEST(RecipeLayout, EnginesThatTakeAPartOfANodeShareIt) {
  const EngineWish part = {.sizes = {.tensor = 4}, .memory_gb = 400};
  const auto layout = layout_of(h200(), 2, part, part);
  ASSERT_TRUE(layout.has_value());
  EXPECT_EQ(layout->prefill_workers, 2U);
  EXPECT_EQ(layout->decode_workers, 2U);
}

TEST(RecipeLayout, TwoRolesShareOneNodeIfEachFitsIntoItsHalf) {
  const auto layout = layout_of(h200(), 1, {.memory_gb = 564}, {.memory_gb = 564});
  ASSERT_TRUE(layout.has_value());
  EXPECT_EQ(layout->prefill.sizes.tensor, 4U);
  EXPECT_EQ(layout->decode.gpus, 4U);
  const auto without = layout_of(h200(), std::nullopt, {.memory_gb = 565}, {.memory_gb = 564});
  ASSERT_TRUE(without.has_value());
  EXPECT_EQ(without->nodes, 2U);
}

TEST(RecipeLayout, TooFewNodesAreRefusedWithTheNumbers) {
  const auto layout = layout_of(gb200(), 2, {.memory_gb = 805}, {.memory_gb = 805});
  ASSERT_FALSE(layout.has_value());
  EXPECT_EQ(layout.error().message,
            "--nodes is 2, and the job needs at least 4: one engine of prefill takes 2 nodes for "
            "8 GPUs of gb200 (1488 GB), where the model needs 805 GB; one of decode takes 2 nodes "
            "for 8 GPUs of gb200 (1488 GB), where the model needs 805 GB");
}

}  // namespace
}  // namespace pdjob::launcher
