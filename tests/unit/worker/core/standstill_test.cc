#include "worker/core/standstill.h"

#include <gtest/gtest.h>

namespace pdjob::worker {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

Standstill engine(Duration lasted, Duration patience) {
  return {.lasted = lasted, .patience = patience};
}
Standstill helper(Duration lasted) { return {.lasted = lasted}; }

TEST(Standstill, AHelperThatStandsStillLongerIsReportedWithoutTheEnginesPatience) {
  const Standstill still = worst(engine(Duration::zero(), milliseconds(1500)), helper(seconds(5)));
  EXPECT_EQ(still.lasted, seconds(5));
  EXPECT_EQ(still.patience, Duration::zero()) << "five seconds of a helper are no hang yet";
}

TEST(Standstill, AnEngineBeyondItsPatienceIsReportedBesideAHelperThatStandsStillLonger) {
  const Standstill still = worst(engine(seconds(2), milliseconds(1500)), helper(seconds(5)));
  EXPECT_EQ(still.lasted, seconds(2));
  EXPECT_EQ(still.patience, milliseconds(1500));
}

TEST(Standstill, AnEngineThatStandsStillLongestIsReported) {
  EXPECT_EQ(worst(engine(seconds(6), seconds(32)), helper(seconds(5))).patience, seconds(32));
  EXPECT_EQ(worst(engine(seconds(6), Duration::zero()), helper(seconds(5))).lasted, seconds(6));
  EXPECT_EQ(worst(engine(Duration::zero(), seconds(2)), helper(Duration::zero())).lasted,
            Duration::zero());
}

TEST(Standstill, WithinItsPatienceTheEngineGivesWayToAHelper) {
  EXPECT_EQ(worst(engine(seconds(4), seconds(32)), helper(seconds(5))).lasted, seconds(5));
  EXPECT_EQ(worst(engine(seconds(4), Duration::zero()), helper(seconds(5))).lasted, seconds(5));
}

TEST(Standstill, TimeWithoutACoreDoesNotCount) {
  const Standstill still = with_waits(helper(seconds(100)), seconds(95), seconds(95));
  EXPECT_EQ(still.lasted, seconds(100));
  EXPECT_EQ(still.counted(), seconds(5));
  EXPECT_EQ(worst(engine(seconds(6), Duration::zero()), still).lasted, seconds(6));
}

TEST(Standstill, AnEngineThatWaitedALittleHasMorePatience) {
  const Standstill still = with_waits(engine(seconds(10), seconds(2)), seconds(2), seconds(5));
  EXPECT_EQ(still.patience, seconds(7));
}

// One thread without a core holds up all the others.
TEST(Standstill, AStarvedEngineIsNotJudgedByItsPace) {
  const Standstill still = with_waits(engine(seconds(10), seconds(2)), milliseconds(2500), {});
  EXPECT_EQ(still.patience, Duration::zero());
}

TEST(Standstill, NobodyWaitedForLongerThanTheTurn) {
  EXPECT_EQ(with_waits(helper(seconds(1)), seconds(3), seconds(3)).counted(), Duration::zero());
}

}  // namespace
}  // namespace pdjob::worker
