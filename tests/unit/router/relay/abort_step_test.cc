#include "router/relay/abort_step.h"

#include <gtest/gtest.h>

namespace pdjob::router {
namespace {

using std::chrono::milliseconds;

constexpr Duration kAtOnce{};
constexpr Duration kLongEnough = milliseconds(800);

TEST(AbortStep, AWorkerIsAskedAndAReplyThatHasBegunIsNeverCut) {
  const AbortSight sight{.at_worker = true};
  EXPECT_EQ(abort_step(sight, kAtOnce), AbortStep::kAsk);
  EXPECT_EQ(abort_step(sight, milliseconds(799)), AbortStep::kAsk);
  EXPECT_EQ(abort_step(sight, kLongEnough), AbortStep::kAnswer);
  for (const bool stream : {false, true}) {
    EXPECT_EQ(
        abort_step({.at_worker = true, .begun = true, .stream = stream}, std::chrono::hours(1)),
        AbortStep::kAsk);
  }
}

TEST(AbortStep, NobodyCanAskAForeignEngine) {
  EXPECT_EQ(abort_step({.at_worker = true, .foreign = true}, kAtOnce), AbortStep::kAnswer);
  EXPECT_EQ(
      abort_step({.at_worker = true, .foreign = true, .begun = true, .stream = true}, kAtOnce),
      AbortStep::kCut);
  // A whole reply that has begun comes anyway.
  EXPECT_EQ(abort_step({.at_worker = true, .foreign = true, .begun = true}, std::chrono::hours(1)),
            AbortStep::kWait);
}

TEST(AbortStep, WithoutAWorkerAStreamWaitsForTheNextOne) {
  EXPECT_EQ(abort_step({.foreign = true}, kAtOnce), AbortStep::kAnswer);
  EXPECT_EQ(abort_step({.foreign = true, .begun = true, .stream = true}, kAtOnce),
            AbortStep::kWait);
  EXPECT_EQ(abort_step({.foreign = true, .begun = true, .stream = true}, kLongEnough),
            AbortStep::kCut);
}

TEST(AbortStep, APartOfABatchIsOnlyAsked) {
  for (const bool begun : {false, true}) {
    EXPECT_EQ(abort_step({.at_worker = true, .begun = begun, .whole = false}, kLongEnough),
              AbortStep::kAsk);
    EXPECT_EQ(abort_step({.at_worker = true, .foreign = true, .begun = begun, .whole = false},
                         kLongEnough),
              AbortStep::kWait);
    EXPECT_EQ(abort_step({.foreign = true, .begun = begun, .whole = false}, kLongEnough),
              AbortStep::kWait);
  }
}

}  // namespace
}  // namespace pdjob::router
