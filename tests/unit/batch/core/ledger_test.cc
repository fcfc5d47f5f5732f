#include "batch/core/ledger.h"

#include <algorithm>
#include <optional>

#include <gtest/gtest.h>

namespace pdjob::batch {
namespace {

using std::chrono::milliseconds;
using std::chrono::minutes;
using std::chrono::seconds;

// Drives the core by hand.
struct Driver {
  explicit Driver(LedgerConfig config = {}) : ledger(config, 1) {}

  std::vector<LedgerEffect> submit(const LedgerEvent& event) {
    std::vector<LedgerEffect> effects;
    ledger.step(event, now, effects);
    return effects;
  }
  std::vector<LedgerEffect> read(uint64_t first, uint64_t last, bool is_last = true,
                                 uint32_t weight = 1) {
    submit(TimePassed{});
    RowsRead event{.last = is_last};
    for (uint64_t id = first; id <= last; ++id) {
      event.rows.push_back({RowId{id}, weight});
    }
    return submit(event);
  }
  std::vector<LedgerEffect> end(const StartAttempt& attempt, Outcome outcome,
                                Duration retry_after = {}) {
    return submit(AttemptEnded{attempt.attempt, outcome, retry_after});
  }

  Instant now{seconds(100)};
  Ledger ledger;
};

template <class Effect>
std::vector<Effect> all(const std::vector<LedgerEffect>& effects) {
  std::vector<Effect> found;
  for (const LedgerEffect& effect : effects) {
    if (const auto* one = std::get_if<Effect>(&effect)) {
      found.push_back(*one);
    }
  }
  return found;
}
template <class Effect>
Effect only(const std::vector<LedgerEffect>& effects) {
  const auto found = all<Effect>(effects);
  EXPECT_EQ(found.size(), 1U);
  return found.empty() ? Effect{} : found.front();
}

// The process may end before the row is asked again.
TEST(Ledger, ARowThatBreaksItsServerInTwoLivesOfTheBatchFails) {
  const LedgerConfig config{.attempts_max = 2};
  Driver first(config);
  const auto attempt = only<StartAttempt>(first.read(1, 1));
  const auto blame = only<NoteBlame>(first.end(attempt, Outcome::kBroken)).blame;
  EXPECT_EQ(blame, (Blame{.broken = 1}));
  Driver second(config);
  second.submit(TimePassed{});
  const auto again = only<StartAttempt>(second.submit(
      RowsRead{.rows = {{.id = RowId{1}, .weight = 1, .blame = blame}}, .last = true}));
  EXPECT_FALSE(only<NoteRow>(second.end(again, Outcome::kBroken)).answered);
}

TEST(Ledger, ARowIsNotBlamedForAFullServer) {
  Driver driver;
  const auto attempt = only<StartAttempt>(driver.read(1, 1));
  EXPECT_TRUE(all<NoteBlame>(driver.end(attempt, Outcome::kBusy)).empty());
}

TEST(Ledger, AsksEachRowAndEndsWhenAllAreNoted) {
  Driver driver;
  const auto started = all<StartAttempt>(driver.read(1, 3));
  ASSERT_EQ(started.size(), 3U);
  for (const StartAttempt& attempt : started) {
    const auto effects = driver.end(attempt, Outcome::kAnswered);
    EXPECT_TRUE(only<NoteRow>(effects).answered);
    EXPECT_TRUE(all<Finished>(effects).empty()) << "it is not on disk yet";
  }
  EXPECT_TRUE(only<Finished>(driver.submit(RowsNoted{{RowId{1}, RowId{2}, RowId{3}}})).complete);
}

TEST(Ledger, StartsNoMoreThanItsWindow) {
  LedgerConfig config;
  config.window = {.first = 2, .max = 2};
  Driver driver(config);
  const auto started = all<StartAttempt>(driver.read(1, 5));
  ASSERT_EQ(started.size(), 2U);
  EXPECT_EQ(only<StartAttempt>(driver.end(started[0], Outcome::kAnswered)).row, RowId{3});
}

TEST(Ledger, StartsNothingWhileTheDiskIsBehind) {
  Driver driver({.noting_max = 1});
  const auto started = all<StartAttempt>(driver.read(1, 40));
  EXPECT_EQ(started.size(), 32U);
  EXPECT_TRUE(all<StartAttempt>(driver.end(started[0], Outcome::kAnswered)).empty());
  EXPECT_FALSE(all<StartAttempt>(driver.submit(RowsNoted{{started[0].row}})).empty());
}

TEST(Ledger, AsksABrokenRowAgainLaterAndGivesUpAfterItsAttempts) {
  Driver driver({.attempts_max = 3});
  StartAttempt attempt = only<StartAttempt>(driver.read(1, 1));
  for (int i = 0; i < 2; ++i) {
    EXPECT_TRUE(all<NoteRow>(driver.end(attempt, Outcome::kBroken)).empty());
    EXPECT_TRUE(all<StartAttempt>(driver.submit(TimePassed{})).empty()) << "at once";
    driver.now = driver.ledger.next_wakeup();
    attempt = only<StartAttempt>(driver.submit(TimePassed{}));
  }
  const NoteRow note = only<NoteRow>(driver.end(attempt, Outcome::kBroken));
  EXPECT_FALSE(note.answered);
  EXPECT_EQ(note.attempts, 3U);
}

TEST(Ledger, ALostConnectionIsNotTheRowsFault) {
  Driver driver({.attempts_max = 2});
  StartAttempt attempt = only<StartAttempt>(driver.read(1, 1));
  for (int i = 0; i < 20; ++i) {
    ASSERT_TRUE(all<NoteRow>(driver.end(attempt, Outcome::kLost)).empty());
    driver.now = driver.ledger.next_wakeup();
    attempt = only<StartAttempt>(driver.submit(TimePassed{}));
  }
  EXPECT_TRUE(only<NoteRow>(driver.end(attempt, Outcome::kAnswered)).answered);
}

TEST(Ledger, WaitsAsLongAsABusyServerAsks) {
  Driver driver;
  const StartAttempt attempt = only<StartAttempt>(driver.read(1, 1));
  driver.end(attempt, Outcome::kBusy, seconds(20));
  driver.now += seconds(19);
  EXPECT_TRUE(all<StartAttempt>(driver.submit(TimePassed{})).empty());
  driver.now += seconds(2);
  EXPECT_EQ(all<StartAttempt>(driver.submit(TimePassed{})).size(), 1U);
}

TEST(Ledger, ARefusalIsFinal) {
  Driver driver;
  const StartAttempt attempt = only<StartAttempt>(driver.read(1, 1));
  EXPECT_FALSE(only<NoteRow>(driver.end(attempt, Outcome::kRefused)).answered);
}

TEST(Ledger, OneRowTriesAServerThatCannotBeReached) {
  Driver driver;
  for (const StartAttempt& attempt : all<StartAttempt>(driver.read(1, 10))) {
    EXPECT_TRUE(all<StartAttempt>(driver.end(attempt, Outcome::kUnreachable)).empty());
  }
  driver.now = driver.ledger.next_wakeup();
  const auto again = all<StartAttempt>(driver.submit(TimePassed{}));
  ASSERT_EQ(again.size(), 1U);
  EXPECT_EQ(all<StartAttempt>(driver.end(again[0], Outcome::kAnswered)).size(), 9U);
}

TEST(Ledger, GivesUpOnAServerAfterItsPatience) {
  Driver driver({.patience = minutes(1)});
  auto started = all<StartAttempt>(driver.read(1, 1));
  std::optional<Finished> finished;
  for (int i = 0; i < 100 && !finished; ++i) {
    ASSERT_EQ(started.size(), 1U);
    const auto effects = driver.end(started[0], Outcome::kUnreachable);
    if (const auto ends = all<Finished>(effects); !ends.empty()) {
      finished = ends.front();
      break;
    }
    driver.now = driver.ledger.next_wakeup();
    started = all<StartAttempt>(driver.submit(TimePassed{}));
  }
  ASSERT_TRUE(finished);
  EXPECT_FALSE(finished->complete);
  EXPECT_EQ(finished->reason, "the server cannot be reached");
}

TEST(Ledger, TheLongestRowsGoFirstAtTheEnd) {
  LedgerConfig config;
  config.window = {.first = 1, .max = 1};
  Driver driver(config);
  driver.submit(TimePassed{});
  auto effects =
      driver.submit(RowsRead{.rows = {{RowId{1}, 5}, {RowId{2}, 70}, {RowId{3}, 9}}, .last = true});
  std::vector<uint64_t> order;
  for (int i = 0; i < 3; ++i) {
    const StartAttempt attempt = only<StartAttempt>(effects);
    order.push_back(attempt.row.value);
    effects = driver.end(attempt, Outcome::kAnswered);
  }
  EXPECT_EQ(order, (std::vector<uint64_t>{2, 3, 1}));
}

std::vector<uint64_t> order_of(Driver& driver, const RowsRead& read) {
  driver.submit(TimePassed{});
  auto effects = driver.submit(read);
  std::vector<uint64_t> order;
  for (size_t i = 0; i < read.rows.size(); ++i) {
    const auto attempt = only<StartAttempt>(effects);
    order.push_back(attempt.row.value);
    effects = driver.end(attempt, Outcome::kAnswered);
  }
  return order;
}

TEST(Ledger, RowsWhosePromptsBeginAlikeGoOneAfterAnother) {
  LedgerConfig config;
  config.window = {.first = 1, .max = 1};
  const auto row = [](uint64_t id, uint64_t beginning, uint32_t weight) {
    return RowsRead::Row{.id = {id}, .weight = weight, .beginning = beginning};
  };
  const RowsRead read{
      .rows = {row(1, 7, 100), row(2, 3, 101), row(3, 7, 102), row(4, 3, 100), row(5, 7, 400)}};
  Driver driver(config);
  EXPECT_EQ(order_of(driver, read), (std::vector<uint64_t>{2, 4, 1, 3, 5}));
  Driver at_the_end(config);
  RowsRead last = read;
  last.last = true;
  EXPECT_EQ(order_of(at_the_end, last), (std::vector<uint64_t>{5, 2, 4, 1, 3}))
      << "much longer rows still go first";
}

TEST(Ledger, RowsGoInOrderWhileMoreAreOnDisk) {
  LedgerConfig config;
  config.window = {.first = 1, .max = 1};
  Driver driver(config);
  driver.submit(TimePassed{});
  const auto effects = driver.submit(
      RowsRead{.rows = {{RowId{1}, 5}, {RowId{2}, 70}, {RowId{3}, 9}}, .last = false});
  EXPECT_EQ(only<StartAttempt>(effects).row, RowId{1});
}

// Twenty rows of one second teach it what is usual; then one hangs.
StartAttempt hanging_row(Driver& driver) {
  const auto started = all<StartAttempt>(driver.read(1, 25));
  driver.now += seconds(1);
  std::vector<RowId> noted;
  for (size_t i = 0; i + 1 < started.size(); ++i) {
    driver.end(started[i], Outcome::kAnswered);
    noted.push_back(started[i].row);
  }
  driver.submit(RowsNoted{noted});
  return started.back();
}

TEST(Ledger, AStragglerIsAskedTwiceAndItsFirstAnswerCounts) {
  Driver driver;
  const StartAttempt first = hanging_row(driver);
  driver.now = driver.ledger.next_wakeup();
  EXPECT_EQ(driver.now, Instant{seconds(105)});
  const StartAttempt second = only<StartAttempt>(driver.submit(TimePassed{}));
  EXPECT_EQ(second.row, first.row);
  EXPECT_TRUE(all<StartAttempt>(driver.submit(TimePassed{})).empty()) << "a third time";

  const auto effects = driver.end(second, Outcome::kAnswered);
  EXPECT_EQ(only<NoteRow>(effects).attempt, second.attempt);
  EXPECT_EQ(only<CancelAttempt>(effects).attempt, first.attempt);
  const auto late = driver.end(first, Outcome::kAnswered);
  EXPECT_TRUE(all<NoteRow>(late).empty());
  EXPECT_EQ(only<DropReply>(late).attempt, first.attempt);
}

TEST(Ledger, AStragglersFailureLeavesItsOtherAttempt) {
  Driver driver({.attempts_max = 1});
  const StartAttempt first = hanging_row(driver);
  driver.now = driver.ledger.next_wakeup();
  const StartAttempt second = only<StartAttempt>(driver.submit(TimePassed{}));
  EXPECT_TRUE(all<NoteRow>(driver.end(second, Outcome::kBroken)).empty());
  EXPECT_TRUE(only<NoteRow>(driver.end(first, Outcome::kAnswered)).answered);
}

TEST(Ledger, StopsAfterWhatWasAnsweredIsNoted) {
  Driver driver;
  const auto started = all<StartAttempt>(driver.read(1, 3));
  driver.end(started[0], Outcome::kAnswered);
  const auto effects = driver.submit(StopAsked{});
  EXPECT_EQ(all<CancelAttempt>(effects).size(), 2U);
  EXPECT_TRUE(all<Finished>(effects).empty());
  EXPECT_FALSE(only<Finished>(driver.submit(RowsNoted{{started[0].row}})).complete);
}

TEST(Ledger, AYieldLetsWhatIsInFlightEnd) {
  Driver driver({.window = {.first = 2}});
  const auto started = all<StartAttempt>(driver.read(1, 4));
  ASSERT_EQ(started.size(), 2U);
  EXPECT_TRUE(driver.submit(YieldAsked{}).empty()) << "nothing is cancelled";
  EXPECT_TRUE(all<StartAttempt>(driver.end(started[0], Outcome::kAnswered)).empty());
  EXPECT_TRUE(all<StartAttempt>(driver.end(started[1], Outcome::kBroken)).empty());
  EXPECT_FALSE(only<Finished>(driver.submit(RowsNoted{{started[0].row}})).complete);
}

TEST(Ledger, ReadsNoMoreRowsThanItMayHold) {
  Driver driver({.rows_ahead = 100});
  const auto first = driver.submit(TimePassed{});
  EXPECT_EQ(only<ReadRows>(first).count, 100U);
  RowsRead event;
  for (uint64_t id = 1; id <= 100; ++id) {
    event.rows.push_back({RowId{id}, 1});
  }
  EXPECT_TRUE(all<ReadRows>(driver.submit(event)).empty()) << "68 rows still wait";
}

TEST(Ledger, AnEmptyBatchIsComplete) {
  Driver driver;
  EXPECT_TRUE(only<Finished>(driver.read(1, 0)).complete);
}

}  // namespace
}  // namespace pdjob::batch
