#include "batch/core/window.h"

#include <gtest/gtest.h>

namespace pdjob::batch {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

// A pool that answers `rate(window)` rows per second.
template <class Rate>
void run_for(Window& window, Instant& now, std::chrono::seconds duration, const Rate& rate) {
  const Instant end = now + duration;
  while (now < end) {
    now += std::chrono::duration_cast<Duration>(
        std::chrono::duration<double>(1.0 / rate(window.size())));
    window.answered(/*full=*/true, now);
  }
}

// Each worker place answers 10 rows a second; the pool has 200 places.
double pool_of_200(size_t window) {
  return 10.0 * static_cast<double>(std::min<size_t>(window, 200));
}

TEST(Window, GrowsToWhereThePoolIsFullAndNotFarBeyond) {
  Window window({.first = 8, .max = 4096});
  Instant now{seconds(1)};
  run_for(window, now, seconds(30), pool_of_200);
  EXPECT_GE(window.size(), 180U);
  EXPECT_LE(window.size(), 460U);
}

TEST(Window, CanBeSetWithinItsLimitAndGoesOnFromThere) {
  Window window({.first = 32, .max = 100});
  Instant now{seconds(1)};
  window.set(1000, now);
  EXPECT_EQ(window.size(), 100U);
  window.set(8, now);
  EXPECT_EQ(window.size(), 8U);
  run_for(window, now, seconds(20), pool_of_200);
  EXPECT_EQ(window.size(), 8U) << "it is not tried out at once what somebody else decided";
  run_for(window, now, seconds(60), pool_of_200);
  EXPECT_GT(window.size(), 8U);
}

TEST(Window, StaysWhereMoreDoesNotHelp) {
  Window window({.first = 32, .max = 4096});
  Instant now{seconds(1)};
  run_for(window, now, seconds(20), [](size_t) { return 100.0; });
  EXPECT_LE(window.size(), 50U);
}

TEST(Window, ShrinksOncePerRoundWhenThePoolRefuses) {
  Window window({.first = 90, .max = 4096});
  const Instant now{seconds(1)};
  window.answered(true, now);
  window.overloaded(now + milliseconds(1));
  window.overloaded(now + milliseconds(2));
  EXPECT_EQ(window.size(), 60U);
}

TEST(Window, IsNeverZeroAndNeverAboveItsLimit) {
  Window window({.first = 1, .max = 4});
  Instant now{seconds(1)};
  for (int i = 0; i < 20; ++i) {
    now += seconds(2);
    window.overloaded(now);
  }
  EXPECT_EQ(window.size(), 1U);
  run_for(window, now, seconds(300), [](size_t size) { return 10.0 * static_cast<double>(size); });
  EXPECT_EQ(window.size(), 4U);
}

TEST(Window, FollowsTheNumberOfWorkers) {
  Window window({.first = 40, .max = 4096});
  window.count_workers(2);
  EXPECT_EQ(window.size(), 40U);
  window.count_workers(3);
  EXPECT_EQ(window.size(), 60U);
  window.count_workers(0);  // Unknown for a moment.
  window.count_workers(1);
  EXPECT_EQ(window.size(), 20U);
}

TEST(Window, DoesNotGrowWhileRowsAreMissing) {
  Window window({.first = 8, .max = 4096});
  Instant now{seconds(1)};
  for (int i = 0; i < 1000; ++i) {
    now += milliseconds(10);
    window.answered(/*full=*/false, now);
  }
  EXPECT_EQ(window.size(), 8U);
}

}  // namespace
}  // namespace pdjob::batch
