#include "worker/core/standstill.h"

#include <gtest/gtest.h>

namespace pdjob::worker {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

Standstill engine(Duration lasted, Duration patience) {
  return {.lasted = lasted, .patience = patience, .since = Instant(seconds(1000))};
}

TEST(Standstill, AHelperThatStandsStillLongerIsReportedWithoutTheEnginesPatience) {
  const Standstill still = worst(engine(Duration::zero(), milliseconds(1500)), seconds(5));
  EXPECT_EQ(still.lasted, seconds(5));
  EXPECT_EQ(still.patience, Duration::zero()) << "five seconds of a helper are no hang yet";
}

TEST(Standstill, AnEngineBeyondItsPatienceIsReportedBesideAHelperThatStandsStillLonger) {
  const Standstill still = worst(engine(seconds(2), milliseconds(1500)), seconds(5));
  EXPECT_EQ(still.lasted, seconds(2));
  EXPECT_EQ(still.patience, milliseconds(1500));
}

TEST(Standstill, AnEngineThatStandsStillLongestIsReported) {
  EXPECT_EQ(worst(engine(seconds(6), seconds(32)), seconds(5)).patience, seconds(32));
  EXPECT_EQ(worst(engine(seconds(6), Duration::zero()), seconds(5)).lasted, seconds(6));
  EXPECT_EQ(worst(engine(Duration::zero(), seconds(2)), Duration::zero()).lasted, Duration::zero());
}

TEST(Standstill, WithinItsPatienceTheEngineGivesWayToAHelper) {
  EXPECT_EQ(worst(engine(seconds(4), seconds(32)), seconds(5)).lasted, seconds(5));
  EXPECT_EQ(worst(engine(seconds(4), Duration::zero()), seconds(5)).lasted, seconds(5));
}

}  // namespace
}  // namespace pdjob::worker
