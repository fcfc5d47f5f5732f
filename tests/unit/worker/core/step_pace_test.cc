#include "worker/core/step_pace.h"

#include <gtest/gtest.h>

namespace pdjob::worker {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

class StepPaceTest : public testing::Test {
 protected:
  void steps(size_t count, size_t tokens, Duration time) {
    for (size_t i = 0; i < count; ++i) {
      now_ += time;
      pace_.took(tokens, time, now_);
    }
  }
  Instant now_{seconds(1000)};
  StepPace pace_;
};

TEST_F(StepPaceTest, IsUnknownUntilTheEngineHasShownIt) {
  steps(StepPace::kStepsNeeded - 1, 1, milliseconds(10));
  EXPECT_EQ(pace_.patience(1), Duration::zero());
  steps(1, 1, milliseconds(10));
  EXPECT_EQ(pace_.patience(1), StepPace::kPatienceMin);
}

TEST_F(StepPaceTest, ASlowEngineMayTakeItsTime) {
  steps(20, 1, milliseconds(10));
  steps(1, 512, seconds(4));
  EXPECT_EQ(pace_.patience(1), seconds(32));
}

TEST_F(StepPaceTest, AStepLargerThanAllBeforeIsJudgedByTheSlowestToken) {
  steps(20, 2, milliseconds(200));
  EXPECT_EQ(pace_.patience(512), milliseconds(100) * 512 * StepPace::kPatienceFactor);
}

TEST_F(StepPaceTest, WhatWasLongAgoIsForgotten) {
  steps(20, 1, seconds(5));
  now_ += 2 * StepPace::kWindow;
  steps(20, 1, milliseconds(10));
  EXPECT_EQ(pace_.patience(1), StepPace::kPatienceMin);
}

TEST_F(StepPaceTest, TheLastWindowStillCounts) {
  steps(20, 1, seconds(1));
  now_ += StepPace::kWindow;
  steps(1, 1, milliseconds(10));
  EXPECT_EQ(pace_.patience(1), seconds(8));
}

}  // namespace
}  // namespace pdjob::worker
