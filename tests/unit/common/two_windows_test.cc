#include "common/two_windows.h"

#include <limits>

#include <gtest/gtest.h>

namespace pdjob {
namespace {

using std::chrono::seconds;

TEST(TwoWindows, KeepsTheWindowBeforeAndForgetsWhatIsOlder) {
  TwoWindows<int> windows{seconds(10)};
  windows.at(Instant(seconds(100))) += 1;
  windows.at(Instant(seconds(109))) += 1;
  EXPECT_EQ(windows.newer(), 2);
  windows.at(Instant(seconds(110))) += 5;
  EXPECT_EQ(windows.newer(), 5);
  EXPECT_EQ(windows.older(), 2);
  windows.at(Instant(seconds(120))) += 7;
  EXPECT_EQ(windows.older(), 5);
}

TEST(TwoWindows, APauseLongerThanBothForgetsBoth) {
  TwoWindows<int> windows{seconds(10)};
  windows.at(Instant(seconds(100))) += 1;
  windows.at(Instant(seconds(120)));
  EXPECT_EQ(windows.newer(), 0);
  EXPECT_EQ(windows.older(), 0);
}

const Instant kStart{seconds(600)};

TEST(RecentMean, OfNothingIsUnknown) {
  RecentMean mean;
  EXPECT_EQ(mean.us(kStart), 0U);
  mean.add(0, 0, kStart);
  EXPECT_EQ(mean.us(kStart), 0U);
}

TEST(RecentMean, IsTheMeanOfAllMeasurements) {
  RecentMean mean;
  mean.add(0.4, 1, kStart);
  mean.add(0.2, 3, kStart + seconds(1));
  EXPECT_EQ(mean.us(kStart + seconds(1)), 150'000U);
}

TEST(RecentMean, ForgetsWhileNothingIsMeasured) {
  RecentMean mean;
  mean.add(0.4, 1, kStart);
  EXPECT_EQ(mean.us(kStart + RecentMean::kWindow), 400'000U);
  EXPECT_EQ(mean.us(kStart + 2 * RecentMean::kWindow), 0U);
}

TEST(RecentMean, OfWhatTookNoTimeIsNotUnknown) {
  RecentMean mean;
  mean.add(0, 5, kStart);
  EXPECT_EQ(mean.us(kStart), 1U);
}

TEST(RecentMean, BelievesNoMeasurementOfDaysAndNoneThatIsNoNumber) {
  RecentMean mean;
  mean.add(std::numeric_limits<double>::infinity(), 1, kStart);
  EXPECT_EQ(mean.us(kStart), 86'400'000'000U);
  mean.add(std::numeric_limits<double>::quiet_NaN(), 1, kStart);
  mean.add(-1, 2, kStart);
  EXPECT_EQ(mean.us(kStart), 21'600'000'000U);
}

TEST(FadingLine, FindsWhatIsFixedAndWhatGrows) {
  FadingLine line({.fade = 0.99, .slope_part = 0.01});
  for (int i = 0; i < 100; ++i) {
    const double x = 1 + i % 7;
    line.add(x, 20 + 0.5 * x);
  }
  EXPECT_NEAR(line.a(), 20, 1e-6);
  EXPECT_NEAR(line.b(), 0.5, 1e-6);
}

TEST(FadingLine, WithoutASpreadEverythingGrows) {
  FadingLine line;
  EXPECT_FALSE(line.known());
  line.add(4, 20);
  line.add(4, 20);
  EXPECT_EQ(line.b(), 5);
  EXPECT_EQ(line.a(), 0);
}

}  // namespace
}  // namespace pdjob
