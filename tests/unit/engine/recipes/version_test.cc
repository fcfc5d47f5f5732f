#include "engine/recipes/version.h"

#include <gtest/gtest.h>

namespace pdjob::engine {
namespace {

TEST(Version, NumbersAreComparedAsNumbers) {
  EXPECT_TRUE(is_older("0.5.9", "0.5.10"));
  EXPECT_TRUE(is_older("0.20.2", "0.21.0"));
  EXPECT_TRUE(is_older("0.5", "0.5.1"));
  EXPECT_FALSE(is_older("0.5", "0.5.0"));
  EXPECT_FALSE(is_older("0.21.0", "0.21.0"));
  EXPECT_FALSE(is_older("1", "0.99"));
}

TEST(Version, WhatFollowsTheNumbersIsIgnored) {
  EXPECT_FALSE(is_older("0.5.15.post1", "0.5.15"));
  EXPECT_FALSE(is_older("v0.21.0rc2+cpu", "0.21.0"));
  EXPECT_TRUE(is_older("0.0-double", "0.1"));
}

TEST(Version, ABuildBetweenReleasesCannotBeCompared) {
  EXPECT_TRUE(is_release("0.32.0"));
  EXPECT_TRUE(is_release("0.5.15.post1"));
  EXPECT_FALSE(is_release("0.1.dev1+g2b51d23f6"));
  EXPECT_FALSE(is_release("unknown"));
  EXPECT_FALSE(is_release(""));
}

}  // namespace
}  // namespace pdjob::engine
