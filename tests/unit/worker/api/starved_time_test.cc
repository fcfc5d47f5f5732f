#include "worker/api/starved_time.h"

#include <gtest/gtest.h>

namespace pdjob::worker {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

class StarvedTimeTest : public testing::Test {
 protected:
  // `waited`: of the only thread, since it began.
  Duration of(Duration lasted, Duration waited) {
    return starved_
        .of(lasted,
            [&] {
              ++looks_;
              return RunDelays{{1, waited}};
            })
        .longest;
  }

  StarvedTime starved_;
  int looks_ = 0;
};

TEST_F(StarvedTimeTest, CountsFromTheFirstLookAtATurnOn) {
  EXPECT_EQ(of(seconds(1), seconds(100)), seconds(0));
  EXPECT_EQ(of(seconds(5), seconds(103)), seconds(3));
  EXPECT_EQ(of(seconds(6), seconds(104)), seconds(4));
}

TEST_F(StarvedTimeTest, ANewTurnStartsAnew) {
  of(seconds(1), seconds(100));
  EXPECT_EQ(of(seconds(3), seconds(102)), seconds(2));
  EXPECT_EQ(of(seconds(1), seconds(103)), seconds(0));
}

TEST_F(StarvedTimeTest, AfterAPauseATurnIsNewHoweverLongItLasts) {
  of(seconds(1), seconds(100));
  of(milliseconds(0), seconds(101));
  EXPECT_EQ(of(seconds(1), seconds(102)), seconds(0));
}

// The thread that looks also waited for a core. The engine's turn has lasted 8 s by then, and any
// part of it may have been a wait.
TEST_F(StarvedTimeTest, OfATurnWhoseFirstLookIsLateOnlyWhatFollowsCounts) {
  EXPECT_EQ(of(seconds(8), seconds(100)), seconds(8));
  EXPECT_EQ(of(seconds(9), seconds(100)), seconds(8));
  EXPECT_EQ(of(seconds(12), seconds(101)), seconds(9));
  EXPECT_EQ(of(seconds(1), seconds(101)), seconds(0)) << "another turn";
}

TEST_F(StarvedTimeTest, AShortTurnIsNotLookedInto) {
  of(milliseconds(499), seconds(100));
  EXPECT_EQ(looks_, 0);
}

}  // namespace
}  // namespace pdjob::worker
