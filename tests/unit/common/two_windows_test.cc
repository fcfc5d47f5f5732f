#include "common/two_windows.h"

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

}  // namespace
}  // namespace pdjob
