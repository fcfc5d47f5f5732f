#include "batch/api/batch_turns.h"

#include <gtest/gtest.h>

namespace pdjob::batch {
namespace {

constexpr int64_t kNow = 1000;

LiveBatch live(const std::string& id, Stage stage, const std::string& tenant = "a") {
  return {.id = id, .tenant = tenant, .stage = stage, .expires_at = kNow + 100};
}

std::string text_of(const std::vector<BatchStep>& steps) {
  std::string text;
  for (const BatchStep& step : steps) {
    const char* const words[] = {"prepare", "run", "stop", "finish"};
    const char* const endings[] = {"", " completed", " expired", " cancelled"};
    text += (text.empty() ? "" : ", ") + std::string(words[static_cast<int>(step.step)]) + " " +
            step.id + endings[static_cast<int>(step.ending)];
  }
  return text;
}

TEST(BatchTurns, PreparesOnlyAFewAtATime) {
  const std::vector<LiveBatch> all = {live("1", Stage::kPreparing), live("2", Stage::kWaiting),
                                      live("3", Stage::kWaiting)};
  EXPECT_EQ(text_of(next_steps(all, {.preparing_max = 2}, kNow)), "prepare 2");
}

TEST(BatchTurns, HoldsOnlySoManyButEndsTheOthers) {
  LiveBatch late = live("3", Stage::kWaiting);
  late.expires_at = kNow;
  const std::vector<LiveBatch> all = {live("1", Stage::kRunning), live("2", Stage::kWaiting), late};
  EXPECT_EQ(text_of(next_steps(all, {.alive_max = 1}, kNow)), "prepare 3");
  EXPECT_EQ(text_of(next_steps(all, {.alive_max = 2}, kNow)), "prepare 2, prepare 3");
}

TEST(BatchTurns, WaitsAfterAFailure) {
  LiveBatch failed = live("1", Stage::kWaiting);
  failed.not_before = kNow + 1;
  EXPECT_EQ(text_of(next_steps({failed}, {}, kNow)), "");
  EXPECT_EQ(text_of(next_steps({failed}, {}, kNow + 1)), "prepare 1");
}

TEST(BatchTurns, TenantsTakeTurns) {
  const std::vector<LiveBatch> all = {
      live("1", Stage::kRunning, "a"), live("2", Stage::kPrepared, "a"),
      live("3", Stage::kPrepared, "a"), live("4", Stage::kPrepared, "b")};
  EXPECT_EQ(text_of(next_steps(all, {.running_max = 2}, kNow)), "run 4");
  EXPECT_EQ(text_of(next_steps(all, {.running_max = 3}, kNow)), "run 4, run 2");
  EXPECT_EQ(text_of(next_steps(all, {.running_max = 1}, kNow)), "");
}

TEST(BatchTurns, ABatchThatStopsStillCountsAsRunning) {
  const std::vector<LiveBatch> all = {live("1", Stage::kStopping), live("2", Stage::kPrepared)};
  EXPECT_EQ(text_of(next_steps(all, {.running_max = 1}, kNow)), "");
}

TEST(BatchTurns, CancelledAndExpiredOnesStopAndThenFinish) {
  LiveBatch one = live("1", Stage::kRunning);
  one.cancelling = true;
  LiveBatch other = live("2", Stage::kRunning);
  other.expires_at = kNow;
  EXPECT_EQ(text_of(next_steps({one, other}, {}, kNow)), "stop 1, stop 2");
  one.stage = other.stage = Stage::kPrepared;
  EXPECT_EQ(text_of(next_steps({one, other}, {}, kNow)), "finish 1 cancelled, finish 2 expired");
}

TEST(BatchTurns, AllRowsEndedIsCompletedAlsoAfterTheWindow) {
  LiveBatch one = live("1", Stage::kPrepared);
  one.all_ended = true;
  one.expires_at = kNow - 1;
  EXPECT_EQ(text_of(next_steps({one}, {}, kNow)), "finish 1 completed");
}

TEST(BatchTurns, NothingRunsOnAFullDisk) {
  const std::vector<LiveBatch> all = {live("1", Stage::kRunning), live("2", Stage::kPrepared)};
  EXPECT_EQ(text_of(next_steps(all, {.disk_full = true}, kNow)), "stop 1");
}

TEST(BatchTurns, LeavesAloneWhatIsBusy) {
  LiveBatch one = live("1", Stage::kPreparing);
  LiveBatch other = live("2", Stage::kFinishing);
  one.cancelling = other.cancelling = true;
  EXPECT_EQ(text_of(next_steps({one, other}, {}, kNow)), "");
}

}  // namespace
}  // namespace pdjob::batch
