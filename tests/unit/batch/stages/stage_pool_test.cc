#include "batch/stages/stage_pool.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "common/random.h"

namespace pdjob::batch {
namespace {

using Words = std::vector<std::string>;

std::string number_of(auto id) { return std::to_string(id.value); }

struct Speller {
  std::string operator()(const StartStageProcess& e) const {
    return "start " + number_of(e.run) + " as " + std::to_string(e.worker);
  }
  std::string operator()(const EndStageProcess& e) const { return "end " + number_of(e.run); }
  std::string operator()(const SendStageRow& e) const {
    return "row " + number_of(e.row) + " to " + number_of(e.run);
  }
  std::string operator()(const PassStageAnswer& e) const { return "pass " + number_of(e.row); }
  std::string operator()(const FailStageRow& e) const {
    return "fail " + number_of(e.row) + ": " + e.reason;
  }
  std::string operator()(const TellStageDeath& e) const {
    return "tell " + std::to_string(e.worker);
  }
  std::string operator()(const GiveUpStage& e) const { return "give up: " + e.reason; }
};

// A stage told as a story: the effects of each step come back as words.
class Story {
 public:
  explicit Story(const StagePoolConfig& config) : pool(config) {}

  Words step(const StageEvent& event) {
    std::vector<StageEffect> effects;
    pool.step(event, now, effects);
    Words words;
    for (const StageEffect& effect : effects) {
      words.push_back(std::visit(Speller{}, effect));
    }
    return words;
  }
  Words come(uint64_t row) { return step(StageRowCame{{row}}); }
  Words leave(uint64_t row) { return step(StageRowLeft{{row}}); }
  Words answer(uint64_t run) { return step(StageAnswered{{run}}); }
  Words die(uint64_t run, const std::string& how = "killed") { return step(StageDied{{run}, how}); }
  Words sleep(Duration duration) {
    now += duration;
    return step(TimePassed{});
  }

  StagePool pool;
  Instant now{std::chrono::hours(1)};
};

constexpr Duration kBackoff = std::chrono::milliseconds(100);

TEST(StagePool, StartsProcessesAsRowsCome) {
  Story story({.workers = 2, .pipeline = 2});
  EXPECT_EQ(story.come(1), (Words{"start 1 as 0", "row 1 to 1"}));
  EXPECT_EQ(story.come(2), (Words{"start 2 as 1", "row 2 to 2"}));
  EXPECT_EQ(story.answer(1), (Words{"pass 1"}));
  EXPECT_EQ(story.come(3), (Words{"row 3 to 1"})) << "one is free: no other is started";
}

TEST(StagePool, AProcessHasAtMostSoManyRowsAndTheOthersWait) {
  Story story({.workers = 1, .pipeline = 2});
  story.come(1);
  EXPECT_EQ(story.come(2), (Words{"row 2 to 1"}));
  EXPECT_EQ(story.come(3), Words{});
  EXPECT_EQ(story.pool.waiting(), 1U);
  EXPECT_EQ(story.pool.under_way(), 2U);
  EXPECT_EQ(story.answer(1), (Words{"pass 1", "row 3 to 1"}));
}

TEST(StagePool, RowsOfADeadProcessAreAskedAgainTheFirstAlone) {
  Story story({.workers = 1, .pipeline = 3});
  story.come(1), story.come(2), story.come(3);
  EXPECT_EQ(story.die(1), (Words{"tell 0"}));
  EXPECT_EQ(story.pool.next_wakeup(), story.now + kBackoff);
  EXPECT_EQ(story.sleep(kBackoff), (Words{"start 2 as 0", "row 1 to 2"}));
  EXPECT_EQ(story.answer(2), (Words{"pass 1", "row 2 to 2", "row 3 to 2"}));
  EXPECT_EQ(story.pool.deaths(), 1U);
}

TEST(StagePool, ARowThatKillsThreeProcessesFailsAloneOnceAnotherRowIsAnswered) {
  Story story({.workers = 1, .pipeline = 2});
  story.come(1), story.come(2);
  story.die(1);
  story.sleep(kBackoff), story.die(2);
  story.sleep(2 * kBackoff), story.die(3, "signal 11");
  EXPECT_EQ(story.sleep(4 * kBackoff), (Words{"start 4 as 0", "row 2 to 4"}));
  EXPECT_EQ(story.answer(4), (Words{"pass 2",
                                    "fail 1: its process ended 3 times at this row; the last time: "
                                    "signal 11"}));
  EXPECT_EQ(story.pool.waiting(), 0U);
}

TEST(StagePool, TheLastRowFailsWithoutAnotherOneIfTheStageHasWorked) {
  Story story({.workers = 1});
  story.come(1), story.answer(1), story.come(2);
  story.die(1);
  story.sleep(kBackoff), story.die(2);
  const Words last = (story.sleep(2 * kBackoff), story.die(3));
  EXPECT_EQ(last, (Words{"tell 0",
                         "fail 2: its process ended 3 times at this row; the last time: "
                         "killed"}));
}

TEST(StagePool, AStageWithoutAnyAnswerIsGivenUpAndFailsNoRow) {
  Story story({.workers = 1, .pipeline = 2});
  story.come(1), story.come(2);
  Words said;
  uint64_t run = 0;
  while (run < 100 && (said.empty() || !said.back().starts_with("give up"))) {
    said = story.die(++run, "exit code 1");
    EXPECT_TRUE(std::ranges::none_of(said, [](const auto& w) { return w.starts_with("fail"); }));
    story.sleep(std::chrono::seconds(2));
  }
  EXPECT_EQ(run, 7U);
  EXPECT_EQ(said.back(),
            "give up: its process ended 7 times in a row without an answer; the last time: exit "
            "code 1");
  EXPECT_EQ(story.come(3), Words{});
  EXPECT_EQ(story.pool.next_wakeup(), kNever);
}

TEST(StagePool, ManyProcessesThatDieAtOnceAreNoReasonToGiveUp) {
  Story story({.workers = 64, .pipeline = 1});
  for (uint64_t row = 1; row <= 64; ++row) {
    story.come(row);
  }
  for (uint64_t run = 1; run <= 64; ++run) {
    EXPECT_EQ(story.die(run).size(), 1U) << "only a death is told";
  }
  EXPECT_EQ(story.sleep(kBackoff).size(), 128U);
}

TEST(StagePool, ARowThatTakesTooLongEndsItsProcess) {
  Story story({.workers = 1,
               .timeout = std::chrono::seconds(10),
               .start_timeout = std::chrono::seconds(5)});
  story.come(1), story.come(2);
  EXPECT_EQ(story.pool.next_wakeup(), story.now + std::chrono::seconds(15)) << "it starts";
  story.sleep(std::chrono::seconds(12));
  EXPECT_EQ(story.answer(1), (Words{"pass 1"}));
  EXPECT_EQ(story.pool.next_wakeup(), story.now + std::chrono::seconds(10));
  EXPECT_EQ(story.sleep(std::chrono::seconds(10)), (Words{"end 1", "tell 0"}));
  EXPECT_EQ(story.sleep(kBackoff), (Words{"start 2 as 0", "row 2 to 2"}));
}

TEST(StagePool, ALineThatAnswersNoRowEndsTheProcess) {
  Story story({.workers = 1});
  story.come(1), story.answer(1);
  EXPECT_EQ(story.answer(1), (Words{"end 1", "tell 0"}));
}

TEST(StagePool, TheLineOfARowThatHasLeftAnswersNoOther) {
  Story story({.workers = 1, .pipeline = 2});
  story.come(1), story.come(2), story.come(3);
  story.leave(1), story.leave(3);
  EXPECT_EQ(story.pool.first_of({1}), std::nullopt);
  EXPECT_EQ(story.answer(1), Words{});
  EXPECT_EQ(story.pool.first_of({1}), StageRow{2});
  EXPECT_EQ(story.answer(1), (Words{"pass 2"}));
}

TEST(StagePool, ADeadProcessSaysNothingMore) {
  Story story({.workers = 1});
  story.come(1), story.die(1);
  EXPECT_EQ(story.answer(1), Words{});
  EXPECT_EQ(story.die(1), Words{});
}

// Random processes that die, hang, and write too much, and rows that kill them. The oracle knows
// which rows are poison. Each row ends once: a good one with an answer, a poison one as failed.
class World {
 public:
  World(uint64_t seed, uint32_t rows)
      : random_(seed),
        config_{.workers = static_cast<uint32_t>(1 + random_.below(4)),
                .pipeline = static_cast<size_t>(1 + random_.below(6)),
                .timeout = std::chrono::seconds(10),
                .start_timeout = std::chrono::seconds(1)},
        pool_(config_),
        rows_(rows) {
    for (uint64_t row = 2; row <= rows; ++row) {
      if (random_.chance(0.1)) {
        poison_.insert(row);
      }
    }
  }

  void run() {
    // The first row is good, so the stage is known to work.
    come(), answer_first();
    for (int turn = 0; turn < 200'000 && ended_.size() + left_.size() < rows_; ++turn) {
      if (came_ < rows_ && random_.chance(0.3)) {
        come();
      } else if (random_.chance(0.8)) {
        work();
      } else if (random_.chance(0.01) && came_ > 0) {
        leave(1 + random_.below(came_));
      } else {
        pass_time();
      }
      check_bounds();
      if (testing::Test::HasFailure()) {
        return;
      }
    }
    EXPECT_EQ(ended_.size() + left_.size(), rows_) << "a row is lost";
    EXPECT_EQ(pool_.waiting(), 0U);
    for (const auto& [row, failed] : ended_) {
      EXPECT_EQ(failed, poison_.contains(row)) << "row " << row;
    }
  }

 private:
  struct Process {
    std::deque<uint64_t> rows;
    bool hangs = false;
  };

  void step(const StageEvent& event) {
    std::vector<StageEffect> effects;
    pool_.step(event, now_, effects);
    for (const StageEffect& effect : effects) {
      std::visit([this](const auto& one) { take(one); }, effect);
    }
  }
  void take(const StartStageProcess& e) {
    EXPECT_TRUE(processes_.emplace(e.run, Process{}).second);
    EXPECT_TRUE(runs_.insert(e.run).second) << "never reused";
  }
  void take(const EndStageProcess& e) { EXPECT_EQ(processes_.erase(e.run), 1U); }
  void take(const SendStageRow& e) { processes_.at(e.run).rows.push_back(e.row.value); }
  void take(const PassStageAnswer& e) { end(e.row.value, false); }
  void take(const FailStageRow& e) { end(e.row.value, true); }
  void take(const TellStageDeath& /*e*/) {}
  void take(const GiveUpStage& e) { ADD_FAILURE() << e.reason; }

  void end(uint64_t row, bool failed) {
    EXPECT_FALSE(left_.contains(row));
    EXPECT_TRUE(ended_.emplace(row, failed).second) << "row " << row << " ends twice";
    if (!failed) {
      EXPECT_EQ(row, answering_) << "the answer of another row";
    }
  }
  void come() { step(StageRowCame{{++came_}}); }
  void leave(uint64_t row) {
    if (!ended_.contains(row) && left_.insert(row).second) {
      step(StageRowLeft{{row}});
    }
  }
  void answer_first() {
    Process& process = processes_.begin()->second;
    answering_ = process.rows.front();
    process.rows.pop_front();
    step(StageAnswered{processes_.begin()->first});
  }
  // One process does something.
  void work() {
    if (processes_.empty()) {
      return pass_time();
    }
    auto chosen = processes_.begin();
    std::advance(chosen, static_cast<std::ptrdiff_t>(random_.below(processes_.size())));
    auto& [run, process] = *chosen;
    const StageRun id = run;
    if (random_.chance(0.003)) {  // Killed from outside, also while it is idle.
      processes_.erase(chosen);
      return step(StageDied{id, "killed"});
    }
    if (process.rows.empty()) {
      if (random_.chance(0.002)) {
        step(StageAnswered{id});  // A line too many.
      }
      return;
    }
    const uint64_t row = process.rows.front();
    if (process.hangs || poison_.contains(row)) {
      if (process.hangs || random_.chance(0.2)) {
        process.hangs = true;
        return pass_time();
      }
      processes_.erase(chosen);
      return step(StageDied{id, "it broke"});
    }
    process.rows.pop_front();
    answering_ = row;
    step(StageAnswered{id});
  }
  // In steps so small that only rows that hang are late.
  void pass_time() {
    now_ += std::chrono::milliseconds(200);
    step(TimePassed{});
  }
  void check_bounds() {
    EXPECT_GT(pool_.next_wakeup(), now_) << "it does not spin";
    EXPECT_LE(processes_.size(), config_.workers);
    for (const auto& [run, process] : processes_) {
      EXPECT_LE(process.rows.size(), config_.pipeline);
      const auto first = pool_.first_of(run);
      if (first) {
        EXPECT_EQ(first->value, process.rows.front());
      }
    }
  }

  Random random_;
  const StagePoolConfig config_;
  StagePool pool_;
  const uint32_t rows_;
  Instant now_{std::chrono::hours(1)};
  uint64_t came_ = 0;
  uint64_t answering_ = 0;
  std::set<uint64_t> poison_;
  std::set<uint64_t> left_;
  std::map<uint64_t, bool> ended_;
  std::set<StageRun> runs_;
  std::map<StageRun, Process> processes_;
};

TEST(StagePool, WhateverDiesEachRowEndsOnceAndOnlyPoisonFails) {
  for (uint64_t seed = 1; seed <= 300; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    World(seed, 60).run();
    if (testing::Test::HasFailure()) {
      return;
    }
  }
}

}  // namespace
}  // namespace pdjob::batch
