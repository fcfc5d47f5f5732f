#include "common/os/turn_watch.h"

#include <gtest/gtest.h>

namespace pdjob {
namespace {

using std::chrono::seconds;

constexpr Instant kStart{seconds(1000)};

TEST(TurnWatch, SaysHowLongATurnHasLasted) {
  TurnWatch watch;
  EXPECT_EQ(watch.lasted(kStart), Duration::zero()) << "no turn has begun";
  watch.begin(kStart);
  EXPECT_EQ(watch.began(), kStart);
  EXPECT_EQ(watch.lasted(kStart + seconds(3)), seconds(3));
  watch.begin(kStart + seconds(4));
  EXPECT_EQ(watch.lasted(kStart + seconds(5)), seconds(1));
}

TEST(TurnWatch, AThreadThatWaitsStandsStillForNoTime) {
  TurnWatch watch;
  watch.begin(kStart);
  watch.end();
  EXPECT_EQ(watch.began(), kNever);
  EXPECT_EQ(watch.lasted(kStart + seconds(3)), Duration::zero());
}

TEST(TurnWatch, ATurnThatBeganAfterTheReadersTimeHasLastedForNoTime) {
  TurnWatch watch;
  watch.begin(kStart + seconds(1));
  EXPECT_EQ(watch.lasted(kStart), Duration::zero());
}

}  // namespace
}  // namespace pdjob
