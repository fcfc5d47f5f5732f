#include "launcher/job/heartbeats.h"

#include <gtest/gtest.h>

namespace pdjob::launcher {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr Duration kLimit = seconds(3);

class HeartbeatsTest : public testing::Test {
 protected:
  HeartbeatsTest() { beats_.begin(now_); }
  void beat(Duration gap, int times = 1) {
    for (int i = 0; i < times; ++i) {
      now_ += gap;
      beats_.beat(now_);
    }
  }
  Instant now_{seconds(1000)};
  Heartbeats beats_;
};

TEST_F(HeartbeatsTest, WithoutAHistoryTheLimitHolds) {
  beat(milliseconds(500), Heartbeats::kGapsNeeded - 1);
  EXPECT_EQ(beats_.silence_allowed(kLimit), kLimit);
}

TEST_F(HeartbeatsTest, ARegularProcessIsSuspectedSoon) {
  beat(milliseconds(500), 20);
  EXPECT_EQ(beats_.silence_allowed(kLimit), milliseconds(1250));
}

TEST_F(HeartbeatsTest, OneLongGapMakesPatientUntilItIsForgotten) {
  beat(milliseconds(500), 20);
  beat(milliseconds(1000));
  EXPECT_EQ(beats_.silence_allowed(kLimit), milliseconds(2500));
  beat(milliseconds(500), 300);
  EXPECT_EQ(beats_.silence_allowed(kLimit), milliseconds(1250));
}

TEST_F(HeartbeatsTest, NeitherSoonerThanTheMinimumNorLaterThanTheLimit) {
  beat(milliseconds(10), 20);
  EXPECT_EQ(beats_.silence_allowed(kLimit), Heartbeats::kSilenceMin);
  beat(seconds(2));
  EXPECT_EQ(beats_.silence_allowed(kLimit), kLimit);
}

TEST_F(HeartbeatsTest, ForgivenSilenceIsNoGap) {
  beat(milliseconds(500), 20);
  now_ += seconds(30);
  beats_.forgive(now_);
  beat(milliseconds(500));
  EXPECT_EQ(beats_.silence_allowed(kLimit), milliseconds(1250));
}

TEST_F(HeartbeatsTest, TheHistoryOutlivesAnIncarnation) {
  beat(milliseconds(500), 20);
  now_ += seconds(10);
  beats_.begin(now_);
  EXPECT_EQ(beats_.silence_allowed(kLimit), milliseconds(1250));
}

}  // namespace
}  // namespace pdjob::launcher
