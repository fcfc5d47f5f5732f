#include "launcher/job/looks.h"

#include <gtest/gtest.h>

namespace pdjob::launcher {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

TEST(Looks, AWaitThatIsOverCountsFromTheLastHeartbeatOn) {
  Looks looks;
  looks.begin(5'000'000);
  EXPECT_EQ(looks.take({.at_ms = 1000, .waited_us = 7'000'000}), seconds(2));
  EXPECT_EQ(looks.passed(), Duration::zero()) << "there was no look before";
  EXPECT_EQ(looks.take({.at_ms = 3000, .waited_us = 8'000'000}), seconds(1));
  EXPECT_DOUBLE_EQ(looks.share_waited(), 0.5);
}

// A CPU quota may hold a thread back for minutes.
TEST(Looks, AWaitThatGoesOnCountsOnceAndNotAgainWhenItIsOver) {
  Looks looks;
  looks.begin(0);
  looks.take({.runnable = true, .turns = 7, .at_ms = 1000, .ran_us = 40});
  EXPECT_EQ(looks.take({.runnable = true, .turns = 7, .at_ms = 1600, .ran_us = 40}),
            milliseconds(600));
  EXPECT_EQ(looks.take({.runnable = true, .turns = 7, .at_ms = 2200, .ran_us = 40}),
            milliseconds(600));
  EXPECT_DOUBLE_EQ(looks.share_waited(), 1);
  EXPECT_EQ(looks.take({.turns = 8, .at_ms = 2800, .ran_us = 90, .waited_us = 2'000'000}),
            milliseconds(800));
}

// Regression: a quota lets the thread run for a millisecond now and then, so a wait was over at
// each look and the next one, which had just begun, did not count.
TEST(Looks, AWaitThatIsInterruptedForAMomentCounts) {
  Looks looks;
  looks.begin(0);
  looks.take({.runnable = true, .turns = 7, .at_ms = 1000, .ran_us = 40, .waited_us = 900'000});
  EXPECT_EQ(
      looks.take(
          {.runnable = true, .turns = 9, .at_ms = 1600, .ran_us = 1040, .waited_us = 904'000}),
      milliseconds(599));
  EXPECT_EQ(looks.take({.turns = 10, .at_ms = 2200, .ran_us = 2040, .waited_us = 1'600'000}),
            milliseconds(101))
      << "696 ms were over, of which 595 had been told";
}

TEST(Looks, OneThatRunsOnDoesNotWait) {
  Looks looks;
  looks.begin(0);
  looks.take({.runnable = true, .turns = 7, .at_ms = 1000, .ran_us = 100'000});
  EXPECT_EQ(looks.take({.runnable = true, .turns = 7, .at_ms = 2000, .ran_us = 1'100'000}),
            Duration::zero());
}

TEST(Looks, OneThatSleepsDoesNotWait) {
  Looks looks;
  looks.begin(0);
  looks.take({.asleep = true, .turns = 7, .at_ms = 1000});
  EXPECT_EQ(looks.take({.asleep = true, .turns = 7, .at_ms = 2000}), Duration::zero());
  EXPECT_TRUE(looks.slept());
}

TEST(Looks, AnyThreadThatWaitsWhileNoneRunsCounts) {
  Looks looks;
  looks.begin(0);
  looks.take({.at_ms = 1000, .any_runnable = true, .all_ran_us = 5});
  looks.take({.at_ms = 2000, .any_runnable = true, .all_ran_us = 200'005});
  EXPECT_DOUBLE_EQ(looks.share_any_waited(), 0.8);
  looks.take({.at_ms = 3000, .all_ran_us = 200'005, .all_waited_us = 300'000});
  EXPECT_DOUBLE_EQ(looks.share_any_waited(), 0.3);
}

TEST(Looks, TwoLooksAtOneMomentSayNothing) {
  Looks looks;
  looks.begin(0);
  looks.take({.asleep = true, .at_ms = 5});
  looks.take({.asleep = true, .at_ms = 5});
  EXPECT_FALSE(looks.slept());
  EXPECT_DOUBLE_EQ(looks.share_waited(), 0);
}

}  // namespace
}  // namespace pdjob::launcher
