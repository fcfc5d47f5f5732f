#include "launcher/job/starvation.h"

#include <gtest/gtest.h>

namespace pdjob::launcher {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

class StarvationTest : public testing::Test {
 protected:
  StarvationTest() { starvation_.begin(now_); }
  // Returns how often it began or ended.
  int pass(Duration time, double share) {
    int changes = 0;
    for (const Instant end = now_ + time; now_ < end;) {
      now_ += milliseconds(500);
      changes += starvation_.note(share, now_) ? 1 : 0;
    }
    return changes;
  }

  Starvation starvation_;
  Instant now_{seconds(1000)};
};

TEST_F(StarvationTest, BeginsAfterTwoSecondsWithAQuarterOfWaiting) {
  EXPECT_EQ(pass(milliseconds(1500), 0.25), 0);
  EXPECT_EQ(pass(milliseconds(500), 0.25), 1);
  EXPECT_TRUE(starvation_.starved());
  EXPECT_DOUBLE_EQ(starvation_.share(), 0.25);
  EXPECT_EQ(starvation_.since(), now_);
}

TEST_F(StarvationTest, AMomentIsNone) {
  for (int i = 0; i < 10; ++i) {
    EXPECT_EQ(pass(milliseconds(500), 0.9), 0);
    EXPECT_EQ(pass(milliseconds(1500), 0.0), 0);
  }
}

TEST_F(StarvationTest, EndsOnlyAfterFiveSecondsWithLessThanATenth) {
  pass(seconds(2), 0.5);
  EXPECT_EQ(pass(seconds(60), 0.11), 0) << "it does not flap";
  EXPECT_TRUE(starvation_.starved());
  EXPECT_EQ(pass(milliseconds(4500), 0.05), 0);
  EXPECT_EQ(pass(milliseconds(500), 0.05), 1);
  EXPECT_FALSE(starvation_.starved());
}

// A starved process sends its heartbeats late.
TEST_F(StarvationTest, OneNoteOfALongTimeIsEnough) {
  now_ += seconds(20);
  EXPECT_TRUE(starvation_.note(0.9, now_));
}

TEST_F(StarvationTest, ANewIncarnationBeginsAnew) {
  pass(seconds(10), 0.9);
  starvation_.begin(now_);
  EXPECT_FALSE(starvation_.starved());
  EXPECT_DOUBLE_EQ(starvation_.share(), 0);
}

}  // namespace
}  // namespace pdjob::launcher
