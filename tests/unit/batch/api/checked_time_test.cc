#include "batch/api/checked_time.h"

#include <gtest/gtest.h>

namespace pdjob::batch {
namespace {

using std::chrono::seconds;

constexpr Instant kBegin{std::chrono::hours(1)};

TEST(CheckedTime, FollowsAClockThatRunsEvenly) {
  CheckedTime time(seconds(100));
  EXPECT_EQ(time.see(1000, kBegin), 1000);
  EXPECT_EQ(time.see(1030, kBegin + seconds(10)), 1030) << "a small correction";
  EXPECT_EQ(time.see(1040, kBegin + seconds(20)), 1040);
}

TEST(CheckedTime, BelievesNoStepAtOnce) {
  for (const int64_t step : {int64_t{4'000'000'000}, int64_t{-1'000'000}}) {
    CheckedTime time(seconds(100));
    time.see(1000, kBegin);
    EXPECT_EQ(time.see(1001 + step, kBegin + seconds(1)), 1001) << step;
    EXPECT_EQ(time.see(1100 + step, kBegin + seconds(100)), 1100) << step;
    EXPECT_EQ(time.see(1101 + step, kBegin + seconds(101)), 1101 + step) << "it stayed";
    EXPECT_EQ(time.see(1102 + step, kBegin + seconds(102)), 1102 + step);
  }
}

TEST(CheckedTime, AStepThatIsTakenBackLeavesNothing) {
  CheckedTime time(seconds(100));
  time.see(1000, kBegin);
  EXPECT_EQ(time.see(9001, kBegin + seconds(1)), 1001);
  EXPECT_EQ(time.see(1050, kBegin + seconds(50)), 1050);
  EXPECT_EQ(time.see(9101, kBegin + seconds(101)), 1101) << "it waits anew";
}

TEST(CheckedTime, EachStepWaitsAnew) {
  CheckedTime time(seconds(100));
  time.see(1000, kBegin);
  time.see(9001, kBegin + seconds(1));
  EXPECT_EQ(time.see(5090, kBegin + seconds(90)), 1090);
  EXPECT_EQ(time.see(5110, kBegin + seconds(110)), 1110);
  EXPECT_EQ(time.see(5190, kBegin + seconds(190)), 5190);
}

}  // namespace
}  // namespace pdjob::batch
