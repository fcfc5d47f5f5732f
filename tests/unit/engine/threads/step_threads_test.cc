#include "engine/threads/step_threads.h"

#include <vector>

#include <gtest/gtest.h>

namespace pdjob::engine {
namespace {

using std::chrono::microseconds;

const Instant kNow = Instant(std::chrono::hours(1));

EngineUse idle(uint32_t own) { return {.own = own}; }
EngineUse computing(uint32_t own, uint32_t threads) { return {.own = own, .computing = threads}; }
EngineUse stopped(uint32_t own, Duration ago) { return {.own = own, .idle_since = kNow - ago}; }

uint32_t threads(uint32_t own, const std::vector<EngineUse>& others, uint32_t cores) {
  return threads_of_step(own, others, cores, kNow);
}

TEST(StepThreads, AnEngineAloneHasItsOwnThreads) {
  EXPECT_EQ(threads(1, {}, 64), 1U);
  EXPECT_EQ(threads(4, {}, 2), 4U);  // As the job file says, even if the cores are fewer.
}

TEST(StepThreads, AnEngineBorrowsWhatIdleOnesHave) {
  EXPECT_EQ(threads(1, {idle(1)}, 2), 2U);
  EXPECT_EQ(threads(1, {idle(3), idle(4)}, 64), 8U);
}

TEST(StepThreads, NeverMoreThanTheCoresAreBorrowed) {
  EXPECT_EQ(threads(1, {idle(1), idle(1), idle(1)}, 2), 2U);
}

TEST(StepThreads, AnEngineAlwaysHasItsOwnThreads) {
  EXPECT_EQ(threads(1, {computing(1, 2)}, 2), 1U);
  EXPECT_EQ(threads(2, {computing(2, 4)}, 4), 2U);
}

TEST(StepThreads, ComputingEnginesLeaveTheRest) {
  EXPECT_EQ(threads(1, {computing(1, 1)}, 2), 1U);
  EXPECT_EQ(threads(1, {computing(1, 1), idle(2)}, 8), 3U);
  EXPECT_EQ(threads(1, {computing(1, 3), idle(3)}, 8), 2U);
}

TEST(StepThreads, AnEngineBetweenTwoStepsKeepsItsOwnThreads) {
  EXPECT_EQ(threads(1, {stopped(1, microseconds(500))}, 2), 1U);
  EXPECT_EQ(threads(1, {stopped(1, kBetweenSteps)}, 2), 2U);
}

TEST(StepThreads, NumbersOfABrokenEngineAreNoReasonForMoreThreadsThanCores) {
  EXPECT_EQ(threads(1, {idle(512), idle(512)}, 4), 4U);
  EXPECT_EQ(threads(3, {computing(512, 512)}, 4), 3U);
  EXPECT_EQ(threads(1, {stopped(1, microseconds(-5))}, 2), 1U);  // An end that is yet to come.
}

}  // namespace
}  // namespace pdjob::engine
