#include "batch/api/batch_lifecycle.h"

#include <gtest/gtest.h>

namespace pdjob::batch {
namespace {

constexpr int64_t kNow = 1000;
constexpr int64_t kWindow = 100;

std::string text_of(const LifecycleEffect& effect) {
  struct Words {
    std::string operator()(const PrepareJob& e) const { return "prepare " + e.id; }
    std::string operator()(const RunJob& e) const { return "run " + e.id; }
    std::string operator()(const YieldJob& e) const { return "yield " + e.id; }
    std::string operator()(const StopJob& e) const { return "stop " + e.id; }
    std::string operator()(const UnloadJob& e) const { return "unload " + e.id; }
    std::string operator()(const NameResults& e) const { return "name " + e.id; }
    std::string operator()(const FinishJob& e) const {
      return "finish " + e.id + (e.rest == Rest::kExpired ? " expired" : "");
    }
    std::string operator()(const DropJob& e) const { return "drop " + e.id; }
    std::string operator()(const StoreRecord& e) const {
      return "store " + e.batch.id + " " + to_string(e.batch.state);
    }
    std::string operator()(const EndBatch& e) const {
      return "end " + e.batch.id + " " + to_string(e.batch.state) + " " +
             std::to_string(e.results.size());
    }
    std::string operator()(const Drained& /*e*/) const { return "drained"; }
  };
  return std::visit(Words{}, effect);
}

class BatchLifecycleTest : public testing::Test {
 protected:
  void SetUp() override { make({}); }
  void make(const LifecycleConfig& config) {
    core_ = std::make_unique<BatchLifecycle>(config);
    see();
  }
  // Returns the effects, in words.
  std::string step(const LifecycleEvent& event) {
    std::vector<LifecycleEffect> effects;
    core_->step(event, at_, effects);
    std::string text;
    for (const LifecycleEffect& effect : effects) {
      text += (text.empty() ? "" : ", ") + text_of(effect);
      if (const auto* store = std::get_if<StoreRecord>(&effect)) {
        change_ = store->change;
        record_ = store->batch;
      }
      if (const auto* end = std::get_if<EndBatch>(&effect)) {
        record_ = end->batch;
        results_ = end->results;
        unnamed_ = end->unnamed;
      }
    }
    return text;
  }
  std::string see(bool disk_full = false) {
    return step(WorldSeen{.unix_seconds = now_, .disk_full = disk_full});
  }
  std::string fail(const std::string& id, bool progressed = false) {
    return step(JobFailed{.id = id, .why = "why", .errors = "{}", .progressed = progressed});
  }
  // Lets its preparation or run fail again and again, and so many seconds pass each time.
  std::string fail_for(const std::string& id, int times, int64_t seconds) {
    std::string last;
    for (int i = 0; i < times; ++i) {
      last = fail(id);
      pass(seconds);
    }
    return last;
  }
  std::string pass(int64_t seconds) {
    now_ += seconds;
    at_ += std::chrono::seconds(seconds);
    return see();
  }
  static BatchRecord batch(int64_t number, const std::string& tenant = "a") {
    BatchRecord batch{.number = number, .id = std::to_string(number), .tenant = tenant};
    batch.created_at = kNow;
    batch.expires_at = kNow + kWindow;
    batch.output_lifetime = 50;
    return batch;
  }
  std::string add(int64_t number, const std::string& tenant = "a") {
    return step(BatchAdded{batch(number, tenant)});
  }
  std::string prepared(const std::string& id, bool all_ended = false) {
    return step(
        JobPrepared{.id = id, .errors = "", .model = "m", .total = 3, .all_ended = all_ended});
  }
  std::string named(const std::string& id) {
    return step(ResultsNamed{.id = id, .output_file_id = "out", .error_file_id = "err"});
  }
  std::string stored(const std::string& id) { return step(RecordStored{id, change_}); }

  std::unique_ptr<BatchLifecycle> core_;
  int64_t now_ = kNow;
  Instant at_{std::chrono::hours(1)};
  uint64_t change_ = 0;  // The last one that was to be stored.
  BatchRecord record_;   // Of it.
  std::vector<FileRecord> results_;
  std::vector<std::string> unnamed_;
};

TEST_F(BatchLifecycleTest, ABatchGoesFromItsInputToItsResults) {
  EXPECT_EQ(add(1), "prepare 1");
  EXPECT_EQ(prepared("1"), "store 1 in_progress, run 1");
  EXPECT_EQ(record_.in_progress_at, kNow);
  EXPECT_EQ(record_.total, 3);
  EXPECT_EQ(stored("1"), "");
  EXPECT_EQ(step(RunEnded{"1", true}), "name 1");
  EXPECT_EQ(named("1"), "store 1 finalizing");
  EXPECT_EQ(stored("1"), "finish 1");
  pass(7);
  EXPECT_EQ(step(ResultsMade{
                .id = "1", .answered = 2, .failed = 1, .output_bytes = 20, .error_bytes = 10}),
            "end 1 completed 2");
  EXPECT_EQ(record_.ended_at, kNow + 7);
  EXPECT_EQ(results_[0].id, "out");
  EXPECT_EQ(results_[0].filename, "1_output.jsonl");
  EXPECT_EQ(results_[1].expires_at, kNow + 7 + 50);
}

TEST_F(BatchLifecycleTest, AnEmptyResultFileHasNoName) {
  add(1);
  prepared("1", true);
  named("1");
  stored("1");
  EXPECT_EQ(step(ResultsMade{.id = "1", .answered = 3, .output_bytes = 20}), "end 1 completed 1");
  EXPECT_EQ(record_.output_file_id, "out");
  EXPECT_EQ(record_.error_file_id, "");
}

TEST_F(BatchLifecycleTest, ResultsAreMadeOnlyOnceTheirNamesAreStored) {
  add(1);
  EXPECT_EQ(prepared("1", true), "store 1 in_progress, name 1");
  const uint64_t first = change_;
  named("1");
  EXPECT_EQ(step(RecordStored{"1", first}), "") << "an earlier change says nothing of the names";
  EXPECT_EQ(stored("1"), "finish 1");
}

TEST_F(BatchLifecycleTest, AfterACrashResultsKeepTheirNames) {
  BatchRecord left = batch(1);
  left.state = BatchState::kFinalizing;
  left.in_progress_at = left.finalizing_at = kNow;
  left.output_file_id = "old-out";
  left.error_file_id = "old-err";
  EXPECT_EQ(step(BatchAdded{left}), "prepare 1");
  EXPECT_EQ(prepared("1", true), "name 1");
  named("1");
  EXPECT_EQ(record_.output_file_id, "old-out");
  EXPECT_EQ(record_.error_file_id, "old-err");
}

TEST_F(BatchLifecycleTest, AWrongInputEndsTheBatchBeforeAnyRow) {
  add(1);
  EXPECT_EQ(step(JobPrepared{.id = "1", .errors = "{}", .model = ""}), "end 1 failed 0");
  EXPECT_EQ(record_.errors, "{}");
}

TEST_F(BatchLifecycleTest, PreparesOnlyAFewAtATime) {
  make({.preparing_max = 2});
  EXPECT_EQ(add(1), "prepare 1");
  EXPECT_EQ(add(2), "prepare 2");
  EXPECT_EQ(add(3), "");
  EXPECT_EQ(prepared("1"), "store 1 in_progress, run 1, prepare 3");
}

TEST_F(BatchLifecycleTest, HoldsOnlySoManyButEndsTheOthers) {
  make({.alive_max = 1});
  add(1);
  EXPECT_EQ(add(2), "");
  EXPECT_EQ(step(CancelAsked{"2"}), "store 2 cancelling, prepare 2");
}

TEST_F(BatchLifecycleTest, AFailureIsTriedAgainLater) {
  make({.retry_min = std::chrono::seconds(5), .retry_max = std::chrono::seconds(12)});
  add(1);
  for (const int64_t pause : {5, 10, 12, 12}) {
    EXPECT_EQ(fail("1"), "drop 1");
    EXPECT_EQ(core_->trouble("1"), "{}");
    EXPECT_EQ(pass(pause - 1), "");
    EXPECT_EQ(pass(1), "prepare 1") << pause;
  }
}

TEST_F(BatchLifecycleTest, AStepOfTheWallClockDelaysNoRetry) {
  make({.retry_min = std::chrono::seconds(5)});
  add(1);
  fail("1");
  now_ -= 3600;
  EXPECT_EQ(pass(5), "prepare 1");
}

TEST_F(BatchLifecycleTest, ABatchThatCanNeverBePreparedFailsWithTheReason) {
  make({.tries_max = 3});
  add(1);
  EXPECT_EQ(fail_for("1", 2, 20), "drop 1");
  EXPECT_EQ(fail("1"), "drop 1, end 1 failed 0");
  EXPECT_EQ(record_.errors, "{}");
  EXPECT_EQ(record_.ended_at, now_);
  EXPECT_EQ(pass(3600), "") << "it is over";
}

TEST_F(BatchLifecycleTest, ABatchWithAnswersIsTriedUntilItsWindowHasEnded) {
  make({.tries_max = 2, .retry_max = std::chrono::seconds(10)});
  add(1);
  prepared("1");
  EXPECT_EQ(fail_for("1", 9, 10), "drop 1");
  EXPECT_EQ(pass(10), "");
  EXPECT_EQ(fail("1"), "drop 1, end 1 failed 0");
}

TEST_F(BatchLifecycleTest, ACancelledBatchThatFailsEndsCancelled) {
  make({.tries_max = 1});
  add(1);
  step(CancelAsked{"1"});
  EXPECT_EQ(fail("1"), "drop 1, end 1 cancelled 0");
}

TEST_F(BatchLifecycleTest, ACancelWaitsForNoRetry) {
  add(1);
  fail("1");
  EXPECT_EQ(step(CancelAsked{"1"}), "store 1 cancelling, prepare 1");
}

TEST_F(BatchLifecycleTest, ProgressMakesAFailureTheFirstOneAgain) {
  make({.tries_max = 2});
  add(1);
  prepared("1");
  pass(kWindow);
  EXPECT_EQ(fail("1", /*progressed=*/true), "drop 1");
  pass(5);
  EXPECT_EQ(fail("1", /*progressed=*/true), "drop 1");
  pass(5);
  EXPECT_EQ(fail("1"), "drop 1, end 1 failed 0");
}

TEST_F(BatchLifecycleTest, ResultsThatCannotBeMadeHaveNoNamesInTheEnd) {
  make({.tries_max = 1});
  add(1);
  prepared("1", true);
  named("1");
  stored("1");
  pass(kWindow);
  EXPECT_EQ(fail("1"), "drop 1, end 1 failed 0");
  EXPECT_EQ(record_.output_file_id, "");
  EXPECT_EQ(unnamed_, (std::vector<std::string>{"out", "err"}));
}

TEST_F(BatchLifecycleTest, AnExpiredBatchSaysWhatKeptItFromRunning) {
  add(1);
  prepared("1");
  fail("1");
  pass(kWindow);
  prepared("1");
  named("1");
  stored("1");
  step(ResultsMade{.id = "1", .failed = 3, .error_bytes = 9, .expired = true});
  EXPECT_EQ(record_.state, BatchState::kExpired);
  EXPECT_EQ(record_.errors, "{}");
}

TEST_F(BatchLifecycleTest, TenantsTakeTurns) {
  make({.running_max = 1});
  add(1, "a");
  prepared("1");
  add(2, "a");
  add(3, "b");
  prepared("2");
  EXPECT_EQ(prepared("3"), "store 3 in_progress");
  EXPECT_EQ(step(RunEnded{"1", true}), "name 1, run 3") << "not 2, which is older";
}

TEST_F(BatchLifecycleTest, ATenantWithTwoMoreMakesRoomAtOnce) {
  make({.running_max = 2});
  for (const int64_t number : {1, 2}) {
    add(number, "a");
    EXPECT_NE(prepared(std::to_string(number)).find("run"), std::string::npos);
  }
  add(3, "b");
  pass(7);
  EXPECT_EQ(prepared("3"), "store 3 in_progress, yield 1") << "the one that ran longest";
  EXPECT_EQ(see(), "") << "one is enough";
  EXPECT_EQ(step(RunEnded{"1", false}), "run 3");
  EXPECT_EQ(pass(70), "") << "each has one: nobody makes room";
}

TEST_F(BatchLifecycleTest, TenantsWithOneEachMakeRoomAfterTheirTurn) {
  make({.running_max = 1, .turn = std::chrono::seconds(10)});
  add(1, "a");
  prepared("1");
  add(2, "b");
  EXPECT_EQ(prepared("2"), "store 2 in_progress");
  EXPECT_EQ(pass(9), "");
  EXPECT_EQ(pass(1), "yield 1");
  EXPECT_EQ(step(RunEnded{"1", false}), "run 2");
  EXPECT_EQ(pass(10), "yield 2") << "and back";
  EXPECT_EQ(step(RunEnded{"2", false}), "run 1");
}

TEST_F(BatchLifecycleTest, ATenantAloneIsNeverAskedToMakeRoom) {
  make({.running_max = 1, .turn = std::chrono::seconds(10)});
  add(1, "a");
  prepared("1");
  add(2, "a");
  prepared("2");
  EXPECT_EQ(pass(20), "");
}

TEST_F(BatchLifecycleTest, ABatchThatMakesRoomStopsAtOnceWhenItIsCancelled) {
  make({.running_max = 1, .turn = std::chrono::seconds(10)});
  add(1, "a");
  prepared("1");
  add(2, "b");
  prepared("2");
  pass(10);
  EXPECT_EQ(step(CancelAsked{"1"}), "store 1 cancelling, stop 1");
}

TEST_F(BatchLifecycleTest, OneTenantsManyBatchesKeepNobodyFromBeingPrepared) {
  make({.running_max = 1, .alive_max = 3});
  for (const int64_t number : {1, 2, 3, 4}) {
    add(number, "a");
    if (number < 4) {
      prepared(std::to_string(number));
    }
  }
  EXPECT_EQ(add(5, "b"), "unload 3, prepare 5") << "the last one that does not run";
  EXPECT_EQ(prepared("5"), "store 5 in_progress");
  EXPECT_EQ(see(), "") << "the places are shared fairly now";
}

TEST_F(BatchLifecycleTest, MoreTenantsThanPlacesTakeTurnsBeingPrepared) {
  make({.running_max = 1, .alive_max = 2, .turn = std::chrono::seconds(10)});
  add(1, "a");
  prepared("1");
  add(2, "b");
  prepared("2");
  EXPECT_EQ(add(3, "c"), "") << "no other one had its turn";
  EXPECT_EQ(pass(10), "yield 1");
  EXPECT_EQ(step(RunEnded{"1", false}), "run 2, unload 1, prepare 3");
}

TEST_F(BatchLifecycleTest, AFullTenantWaitsAndOthersRun) {
  add(1, "a");
  prepared("1");
  add(2, "b");
  prepared("2");
  EXPECT_EQ(step(WorldSeen{.unix_seconds = now_, .full_tenants = {"a"}}), "yield 1");
  EXPECT_EQ(step(RunEnded{"1", false}), "");
  EXPECT_EQ(see(), "run 1");
}

TEST_F(BatchLifecycleTest, ACancelledBatchStopsAndKeepsWhatItHas) {
  add(1);
  prepared("1");
  EXPECT_EQ(step(CancelAsked{"1"}), "store 1 cancelling, stop 1");
  EXPECT_FALSE(can_cancel(record_));
  EXPECT_EQ(step(RunEnded{"1", false}), "name 1");
  EXPECT_EQ(named("1"), "store 1 cancelling");
  EXPECT_EQ(stored("1"), "finish 1");
  EXPECT_EQ(step(ResultsMade{.id = "1", .answered = 1, .output_bytes = 9}), "end 1 cancelled 1");
}

TEST_F(BatchLifecycleTest, AnExpiredBatchStopsAndItsRestFails) {
  add(1);
  prepared("1");
  EXPECT_EQ(pass(kWindow - 1), "");
  EXPECT_EQ(pass(1), "stop 1");
  EXPECT_EQ(step(RunEnded{"1", false}), "name 1");
  named("1");
  EXPECT_EQ(stored("1"), "finish 1 expired");
  EXPECT_EQ(step(ResultsMade{.id = "1", .failed = 3, .error_bytes = 9, .expired = true}),
            "end 1 expired 1");
}

TEST_F(BatchLifecycleTest, AnExpiryThatIsStoredStaysWhenTheClockGoesBack) {
  BatchRecord left = batch(1);
  left.state = BatchState::kFinalizing;
  left.in_progress_at = left.finalizing_at = kNow;
  left.output_file_id = left.error_file_id = "x";
  step(BatchAdded{left});
  EXPECT_EQ(prepared("1"), "name 1");
  named("1");
  EXPECT_EQ(stored("1"), "finish 1 expired");
}

TEST_F(BatchLifecycleTest, AStepOfTheWallClockEndsNoWindowAndMakesNoneLonger) {
  add(1);
  prepared("1");
  now_ += 1'000'000;
  EXPECT_EQ(see(), "") << "forward";
  now_ -= 2'000'000;
  EXPECT_EQ(pass(kWindow - 1), "") << "back";
  EXPECT_EQ(pass(1), "stop 1");
  step(RunEnded{"1", false});
  named("1");
  stored("1");
  step(ResultsMade{.id = "1", .failed = 3, .error_bytes = 9, .expired = true});
  EXPECT_GE(record_.finalizing_at, record_.in_progress_at) << "times never go back";
  EXPECT_GE(record_.ended_at, record_.expires_at);
}

TEST_F(BatchLifecycleTest, AClockThatWentBackAtARestartAddsAtMostOneWindow) {
  now_ -= 1'000'000;
  see();
  add(1);
  prepared("1");
  EXPECT_EQ(pass(kWindow - 1), "");
  EXPECT_EQ(pass(1), "stop 1");
}

TEST_F(BatchLifecycleTest, AllRowsEndedIsCompletedAlsoAfterTheWindow) {
  add(1);
  prepared("1");
  pass(kWindow);
  step(RunEnded{"1", true});
  named("1");
  EXPECT_EQ(stored("1"), "finish 1");
}

TEST_F(BatchLifecycleTest, NothingRunsOnAFullDisk) {
  add(1);
  prepared("1");
  EXPECT_EQ(see(/*disk_full=*/true), "yield 1") << "rows in flight have cost their work";
  EXPECT_EQ(step(RunEnded{"1", false}), "");
  EXPECT_EQ(see(), "run 1");
}

TEST_F(BatchLifecycleTest, DrainsWhenNothingRunsAndStartsNothingMore) {
  EXPECT_EQ(add(1), "prepare 1");
  EXPECT_EQ(prepared("1"), "store 1 in_progress, run 1");
  EXPECT_EQ(step(DrainAsked{}), "stop 1");
  EXPECT_EQ(add(2), "");
  EXPECT_EQ(step(RunEnded{"1", true}), "drained");
  EXPECT_EQ(see(), "");
}

}  // namespace
}  // namespace pdjob::batch
