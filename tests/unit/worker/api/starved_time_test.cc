#include "worker/api/starved_time.h"

#include <gtest/gtest.h>

namespace pdjob::worker {
namespace {

using std::chrono::seconds;

TEST(StarvedTime, CountsFromTheFirstLookAtATurnOn) {
  StarvedTime starved;
  const Instant turn(seconds(5));
  EXPECT_EQ(starved.since(turn, seconds(100)), seconds(0));
  EXPECT_EQ(starved.since(turn, seconds(103)), seconds(3));
  EXPECT_EQ(starved.since(turn, seconds(104)), seconds(4));
}

TEST(StarvedTime, ANewTurnStartsAnew) {
  StarvedTime starved;
  starved.since(Instant(seconds(5)), seconds(100));
  starved.since(Instant(seconds(5)), seconds(103));
  EXPECT_EQ(starved.since(Instant(seconds(9)), seconds(104)), seconds(0));
}

}  // namespace
}  // namespace pdjob::worker
