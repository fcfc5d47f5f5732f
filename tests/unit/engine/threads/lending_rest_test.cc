#include "engine/threads/lending_rest.h"

#include <gtest/gtest.h>

namespace pdjob::engine {
namespace {

using std::chrono::milliseconds;

const Instant kNow = Instant(std::chrono::hours(1));

// A step of two threads, one of them borrowed, which compute for 10 ms each.
BorrowedStep step_of(milliseconds took) {
  return {.own = 1, .threads = 2, .took = took, .computed = milliseconds(10)};
}

TEST(LendingRest, BorrowingRestsAfterOneStepThatSavedLessThanHalfOfWhatItCould) {
  LendingRest rest;
  EXPECT_FALSE(rest.judge(step_of(milliseconds(15)), kNow)) << "of 20 ms alone, and 10 ms at best";
  EXPECT_FALSE(rest.rests(kNow));
  EXPECT_TRUE(rest.judge(step_of(milliseconds(16)), kNow));
  EXPECT_TRUE(rest.rests(kNow));
  EXPECT_TRUE(rest.rests(kNow + LendingRest::kFirst - milliseconds(1)));
  EXPECT_FALSE(rest.rests(kNow + LendingRest::kFirst));
}

TEST(LendingRest, MoreBorrowedThreadsMustSaveMore) {
  BorrowedStep step{.own = 2, .threads = 8, .took = milliseconds(25), .computed = milliseconds(10)};
  EXPECT_FALSE(LendingRest().judge(step, kNow));
  step.took = milliseconds(26);
  EXPECT_TRUE(LendingRest().judge(step, kNow));
}

TEST(LendingRest, AShortDisturbanceDoesNotEndWhatPaysButOneSlowStepDoes) {
  LendingRest rest;
  for (int i = 0; i < 20; ++i) {
    EXPECT_FALSE(rest.judge(step_of(milliseconds(10)), kNow));
  }
  EXPECT_FALSE(rest.judge(step_of(milliseconds(20)), kNow)) << "5 ms lost";
  EXPECT_FALSE(rest.judge(step_of(milliseconds(10)), kNow));
  EXPECT_FALSE(rest.judge(step_of(milliseconds(20)), kNow));
  EXPECT_TRUE(rest.judge(step_of(milliseconds(26)), kNow)) << "more than all credit";
}

TEST(LendingRest, ItIsTriedLessAndLessOftenWhileItDoesNotPay) {
  LendingRest rest;
  Duration before{};
  uint64_t tries = 0;
  for (Instant now = kNow; now < kNow + std::chrono::minutes(2); now += milliseconds(20)) {
    if (!rest.rests(now)) {
      EXPECT_TRUE(rest.judge(step_of(milliseconds(500)), now));
      EXPECT_GE(rest.length(), before);
      EXPECT_LE(rest.length(), LendingRest::kLongest);
      before = rest.length();
      ++tries;
    }
  }
  EXPECT_EQ(before, LendingRest::kLongest);
  EXPECT_EQ(rest.count(), tries);
  EXPECT_LT(tries, 20U);
}

TEST(LendingRest, StepsThatPayMakeTheNextRestShortAgainOneByOne) {
  LendingRest rest;
  for (int i = 0; i < 3; ++i) {
    rest.judge(step_of(milliseconds(500)), kNow);
  }
  EXPECT_EQ(rest.length(), 4 * LendingRest::kFirst);
  EXPECT_FALSE(rest.judge(step_of(milliseconds(11)), kNow));
  EXPECT_EQ(rest.length(), 2 * LendingRest::kFirst);
  rest.judge(step_of(milliseconds(11)), kNow);
  rest.judge(step_of(milliseconds(11)), kNow);
  EXPECT_EQ(rest.length(), Duration::zero());
  rest.judge(step_of(milliseconds(500)), kNow);
  EXPECT_EQ(rest.length(), LendingRest::kFirst);
}

}  // namespace
}  // namespace pdjob::engine
