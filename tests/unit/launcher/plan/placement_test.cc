#include "launcher/plan/placement.h"

#include <gtest/gtest.h>

namespace pdjob::launcher {
namespace {

using Words = std::vector<std::string>;

TEST(Placement, TakesTheNodeWithTheMostFreeCoresAndTheFirstOfEqualOnes) {
  Placement placement({{.name = "b", .cores = 4}, {.name = "a", .cores = 4}});
  EXPECT_EQ(placement.take({.cores = 1})->node, "b");
  EXPECT_EQ(placement.take({.cores = 1})->node, "a");
  EXPECT_EQ(placement.take({.cores = 3})->node, "b");
  EXPECT_EQ(placement.take({.cores = 1})->node, "a");
}

TEST(Placement, CoresMayBePromisedMoreThanOnce) {
  Placement placement({{.name = "a", .cores = 1}});
  EXPECT_TRUE(placement.take({.cores = 8}));
  EXPECT_TRUE(placement.take({.cores = 8}));
}

TEST(Placement, AProcessMayHaveSeveralGpusTheLeastUsedOnes) {
  Placement placement({{.name = "a", .cores = 8, .gpus = {"0", "1", "2"}}});
  EXPECT_EQ(placement.take({.gpus = 2})->gpus, (Words{"0", "1"}));
  EXPECT_EQ(placement.take({.gpus = 2})->gpus, (Words{"2", "0"}));
}

TEST(Placement, ANodeWithTooFewGpusIsNoPlace) {
  Placement placement({{.name = "big", .cores = 64}, {.name = "gpu", .cores = 1, .gpus = {"0"}}});
  EXPECT_EQ(placement.take({.cores = 8, .gpus = 1})->node, "gpu");
  EXPECT_FALSE(placement.take({.gpus = 2}));
}

TEST(Placement, WhatIsReleasedCanBeTakenAgain) {
  Placement placement({{.name = "a", .cores = 4, .gpus = {"0", "1"}}, {.name = "b", .cores = 3}});
  const Demand demand{.cores = 2, .gpus = 1};
  const Place place = *placement.take(demand);
  EXPECT_EQ(placement.take({.cores = 1})->node, "b");
  placement.release(place, demand);
  EXPECT_EQ(*placement.take(demand), place);
}

TEST(Placement, ALostNodeIsNoPlaceUntilItJoinsAgain) {
  Placement placement({{.name = "a", .cores = 1}});
  const Place place = *placement.take({.cores = 1});
  placement.remove("a");
  EXPECT_FALSE(placement.take({.cores = 1}));
  placement.release(place, {.cores = 1});
  placement.add({.name = "a", .cores = 1});
  EXPECT_EQ(placement.take({.cores = 1})->node, "a");
}

}  // namespace
}  // namespace pdjob::launcher
