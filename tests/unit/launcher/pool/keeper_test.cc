#include "launcher/pool/keeper.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include <gtest/gtest.h>

namespace pdjob::launcher {
namespace {

using std::chrono::milliseconds;
using std::chrono::minutes;
using std::chrono::seconds;

// As many cores as the text says, of the first nodes that have some.
Result<std::vector<Share>> place(const PoolJobOrder& order, const std::vector<Node>& free) {
  uint32_t wanted = static_cast<uint32_t>(std::stoul(order.text));
  std::vector<Share> shares;
  for (const Node& node : free) {
    const uint32_t cores = std::min(wanted, node.cores);
    if (cores > 0) {
      shares.push_back({.node = node.name, .cores = cores, .labels = node.labels});
      wanted -= cores;
    }
  }
  if (wanted > 0) {
    return Error{ErrorCode::kUnavailable, "it lacks " + std::to_string(wanted) + " cores"};
  }
  return shares;
}

class KeeperTest : public testing::Test {
 protected:
  KeeperTest() { begin({.root = "r"}); }

  void begin(PoolLedger ledger) {
    keeper_.emplace(KeeperSetting{.first_port = 7800, .last_port = 7801}, place, std::move(ledger),
                    now_);
  }
  std::vector<KeeperEffect> step(const KeeperEvent& event) {
    std::vector<KeeperEffect> effects;
    keeper_->step(event, now_, effects);
    return effects;
  }
  // Lets time pass, and returns all that happened.
  std::vector<KeeperEffect> pass(Duration duration) {
    std::vector<KeeperEffect> all;
    for (const Instant end = now_ + duration; now_ < end;) {
      now_ = std::min(end, now_ + milliseconds(100));
      for (KeeperEffect& effect : step(TimePassed{})) {
        all.push_back(std::move(effect));
      }
    }
    return all;
  }
  std::vector<KeeperEffect> join(const std::string& name, uint32_t cores,
                                 std::vector<RunningProcess> running = {}) {
    return step(NodeJoined{{.name = name, .host = "h" + name, .cores = cores}, running, {}});
  }
  static PoolJobOrder order(const std::string& name, uint32_t cores) {
    return {.name = name, .text = std::to_string(cores), .priority = 100};
  }
  static PoolJobOrder batch(const std::string& name, uint32_t cores) {
    return {.name = name, .text = std::to_string(cores), .batch = true};
  }
  void submit(PoolJobOrder order) {
    step(JobSubmitted{std::move(order)});
    pass(milliseconds(200));
  }
  static PoolJobOrder warm(const std::string& name, uint32_t cores) {
    PoolJobOrder order = batch(name, cores);
    order.keep = minutes(10);
    order.workers = "of " + order.text;
    return order;
  }
  // The last one of that name.
  const PoolJob& job(const std::string& name) const {
    const auto& jobs = keeper_->ledger().jobs;
    const auto at = std::find_if(jobs.rbegin(), jobs.rend(),
                                 [&](const PoolJob& job) { return job.order.name == name; });
    static const PoolJob none;
    return at == jobs.rend() ? none : *at;
  }
  void done(const std::string& name) {
    exits(PoolProcess(job(name).launcher), "exit code 0");
    pass(milliseconds(200));
  }
  PoolJobState state(const std::string& name) const { return job(name).state; }
  std::vector<KeeperEffect> exits(const PoolProcess& process, const std::string& how) {
    return step(ProcessExited{process.incarnation, how, false, process.node});
  }
  // All processes of the job end as they were told to.
  void let_end(const std::string& name) {
    exits(PoolProcess(job(name).launcher), "exit code 0");
    while (!job(name).shares.empty()) {
      exits(PoolProcess(job(name).shares.front().agent), "exit code 0");
    }
  }
  uint64_t free_cores() const {
    uint64_t cores = 0;
    for (const Node& node : keeper_->free_nodes()) {
      cores += node.cores;
    }
    return cores;
  }
  template <class Effect>
  static std::vector<Effect> all_of(const std::vector<KeeperEffect>& effects) {
    std::vector<Effect> found;
    for (const KeeperEffect& effect : effects) {
      if (const auto* one = std::get_if<Effect>(&effect)) {
        found.push_back(*one);
      }
    }
    return found;
  }

  Instant now_{std::chrono::hours(1)};
  std::optional<Keeper> keeper_;
};

TEST_F(KeeperTest, AJobGetsAllItsSharesOrWaits) {
  join("a", 4);
  submit(order("big", 6));
  EXPECT_EQ(state("big"), PoolJobState::kQueued);
  EXPECT_EQ(job("big").why, "it lacks 2 cores");
  EXPECT_EQ(free_cores(), 4U);
  join("b", 4);
  const auto effects = pass(milliseconds(200));
  EXPECT_EQ(state("big"), PoolJobState::kRunning);
  EXPECT_EQ(all_of<StartShare>(effects).size(), 2U);
  EXPECT_EQ(all_of<StartLauncher>(effects).size(), 1U);
  EXPECT_EQ(free_cores(), 2U);
}

TEST_F(KeeperTest, AShareIsFreeOnlyWhenItsProcessHasEnded) {
  join("a", 4);
  submit(order("one", 4));
  submit(order("next", 4));
  step(JobCancelled{"one"});
  EXPECT_EQ(state("one"), PoolJobState::kEnding);
  exits(PoolProcess(job("one").launcher), "exit code 0");
  pass(seconds(1));
  EXPECT_EQ(state("next"), PoolJobState::kQueued);
  EXPECT_EQ(free_cores(), 0U);
  exits(PoolProcess(job("one").shares.front().agent), "exit code 0");
  pass(seconds(1));
  EXPECT_EQ(state("one"), PoolJobState::kEnded);
  EXPECT_EQ(state("next"), PoolJobState::kRunning);
}

TEST_F(KeeperTest, AJobThatServesPreemptsBatchesThatComeBack) {
  join("a", 4);
  submit(batch("old", 2));
  submit(batch("late", 2));
  const std::string key = keeper_->ledger().key_of(job("late"));
  submit(order("online", 2));
  EXPECT_EQ(state("old"), PoolJobState::kRunning) << "the latest of equal ones makes room";
  EXPECT_EQ(state("late"), PoolJobState::kEnding);
  let_end("late");
  pass(seconds(1));
  EXPECT_EQ(state("online"), PoolJobState::kRunning);
  EXPECT_EQ(state("late"), PoolJobState::kQueued);
  step(JobCancelled{"online"});
  let_end("online");
  pass(seconds(1));
  EXPECT_EQ(state("late"), PoolJobState::kRunning);
  EXPECT_NE(keeper_->ledger().key_of(job("late")), key)
      << "it takes nothing for its own that is left";
}

TEST_F(KeeperTest, NoBatchIsPreemptedInVain) {
  join("a", 4);
  submit(batch("night", 2));
  submit(order("huge", 8));
  EXPECT_EQ(state("night"), PoolJobState::kRunning);
  EXPECT_EQ(job("huge").why, "it lacks 6 cores");
}

TEST_F(KeeperTest, NobodyTakesWhatAJobWasPreemptedFor) {
  join("a", 4);
  submit(batch("night", 4));
  submit(order("online", 3));
  PoolJobOrder small = batch("small", 1);
  small.queue = "other";
  submit(small);
  exits(PoolProcess(job("night").launcher), "exit code 0");
  pass(seconds(1));
  EXPECT_EQ(state("small"), PoolJobState::kQueued);
  let_end("night");
  pass(seconds(1));
  EXPECT_EQ(state("online"), PoolJobState::kRunning);
  EXPECT_EQ(state("small"), PoolJobState::kRunning);
}

TEST_F(KeeperTest, AJobThatWaitsHoldsUpItsQueueAlone) {
  join("a", 4);
  submit(order("first", 6));
  submit(order("second", 1));
  PoolJobOrder other = order("third", 1);
  other.queue = "other";
  submit(other);
  EXPECT_EQ(state("second"), PoolJobState::kQueued);
  EXPECT_EQ(job("second").why, "an earlier job of its queue waits");
  EXPECT_EQ(state("third"), PoolJobState::kRunning);
}

TEST_F(KeeperTest, AQueueHasAtMostItsQuota) {
  join("a", 8);
  step(QuotaSet{{.queue = "default", .cores = 4}});
  submit(order("one", 3));
  submit(order("two", 2));
  EXPECT_EQ(state("two"), PoolJobState::kQueued);
  EXPECT_EQ(job("two").why, "queue default would have 5 cores, its quota is 4");
  step(QuotaSet{{.queue = "default"}});
  pass(milliseconds(200));
  EXPECT_EQ(state("two"), PoolJobState::kRunning);
}

TEST_F(KeeperTest, ALauncherThatIsDoneEndsItsJob) {
  join("a", 4);
  submit(batch("rows", 2));
  exits(PoolProcess(job("rows").launcher), "exit code 0");
  exits(PoolProcess(job("rows").shares.front().agent), "exit code 0");
  pass(milliseconds(200));
  EXPECT_EQ(state("rows"), PoolJobState::kEnded);
  EXPECT_EQ(job("rows").why, "done");
}

TEST_F(KeeperTest, ALauncherThatIsKilledOrStoppedStartsAgainAndOneThatRefusesItsFileEndsItsJob) {
  join("a", 4);
  submit(order("one", 2));
  for (const char* how : {"signal 9 (Killed)", "exit code 0", "exit code 130", "exit code 1"}) {
    exits(PoolProcess(job("one").launcher), how);
    EXPECT_EQ(all_of<StartLauncher>(pass(seconds(9))).size(), 1U) << how;
  }
  exits(PoolProcess(job("one").launcher), "exit code 2");
  EXPECT_EQ(state("one"), PoolJobState::kEnding);
  EXPECT_EQ(job("one").why, "failed: its launcher ended with exit code 2");
}

TEST_F(KeeperTest, AnInterruptedBatchIsNotDone) {
  join("a", 4);
  submit(batch("rows", 2));
  exits(PoolProcess(job("rows").launcher), "exit code 130");
  EXPECT_EQ(state("rows"), PoolJobState::kRunning);
  EXPECT_EQ(all_of<StartLauncher>(pass(seconds(2))).size(), 1U);
}

TEST_F(KeeperTest, ALauncherThatDiesAgainAndAgainFailsItsJob) {
  join("a", 4);
  submit(order("one", 2));
  for (int i = 0; i < 5 && state("one") == PoolJobState::kRunning; ++i) {
    exits(PoolProcess(job("one").launcher), "signal 11 (Segmentation fault)");
    pass(seconds(31));
  }
  EXPECT_EQ(job("one").why,
            "failed: its launcher ended 5 times in a row, the last time with signal 11 "
            "(Segmentation fault)");
}

TEST_F(KeeperTest, AShareOfALostNodeMovesToAnotherOneWithItsLabels) {
  step(NodeJoined{{.name = "a", .cores = 2, .labels = {{"gpu", "h200"}}}, {}, {}});
  submit(order("one", 2));
  step(NodeJoined{{.name = "b", .cores = 2}, {}, {}});
  step(NodeJoined{{.name = "c", .cores = 2, .labels = {{"gpu", "h200"}}}, {}, {}});
  step(NodeLost{"a", "silent"});
  EXPECT_TRUE(all_of<StartShare>(pass(seconds(9))).empty()) << "the node may come back";
  EXPECT_EQ(all_of<StartShare>(pass(seconds(2))).size(), 1U);
  EXPECT_EQ(job("one").shares.front().share.node, "c");
}

TEST_F(KeeperTest, ALostLauncherStartsElsewhereOnlyWhenItCannotRunAnyMore) {
  join("a", 2);
  submit(order("one", 2));
  join("b", 2);
  step(NodeLost{"a", "silent"});
  EXPECT_TRUE(all_of<StartLauncher>(pass(minutes(10))).empty());
  EXPECT_EQ(all_of<StartLauncher>(pass(seconds(11))).size(), 1U);
  EXPECT_EQ(job("one").launcher.node, "b");
}

TEST_F(KeeperTest, AnAgentThatComesBackEmptyGetsItsProcessesAnew) {
  join("a", 2);
  submit(order("one", 2));
  step(NodeLost{"a", "its agent died"});
  const auto effects = join("a", 2);
  EXPECT_EQ(all_of<StartLauncher>(effects).size(), 1U);
  EXPECT_EQ(all_of<StartShare>(effects).size(), 1U);
}

TEST_F(KeeperTest, TheNextKeeperGoesOnWithWhatRuns) {
  join("a", 2);
  submit(order("one", 2));
  const auto decoded = decode_pool_ledger(encode(keeper_->ledger()));
  ASSERT_TRUE(decoded);
  begin(*decoded);
  EXPECT_TRUE(keeper_->free_nodes().empty());
  const auto effects = join("a", 2,
                            {{.incarnation = job("one").launcher.incarnation},
                             {.incarnation = job("one").shares.front().agent.incarnation}});
  EXPECT_TRUE(effects.empty());
  EXPECT_TRUE(pass(seconds(1)).empty());
  EXPECT_EQ(free_cores(), 0U);
}

TEST_F(KeeperTest, ANodeWithAProcessOfNobodyGetsNothingUntilThatHasEnded) {
  const auto effects = join("a", 2, {{.incarnation = {77}}});
  ASSERT_EQ(all_of<EndProcess>(effects).size(), 1U);
  EXPECT_EQ(all_of<EndProcess>(effects).front().signal, Signal::kKill);
  submit(order("one", 2));
  EXPECT_EQ(state("one"), PoolJobState::kQueued);
  step(ProcessExited{{77}, "signal 9 (Killed)", false, "a"});
  pass(milliseconds(200));
  EXPECT_EQ(state("one"), PoolJobState::kRunning);
}

TEST_F(KeeperTest, WhatDoesNotEndInTimeIsKilled) {
  join("a", 2);
  submit(order("one", 2));
  step(JobCancelled{"one"});
  const auto ends = all_of<EndProcess>(pass(seconds(121)));
  ASSERT_EQ(ends.size(), 1U);
  EXPECT_EQ(ends.front().signal, Signal::kKill);
}

TEST_F(KeeperTest, TwoLaunchersOfOneDoorAreOnDifferentNodes) {
  join("a", 4);
  PoolJobOrder first = order("one", 1);
  PoolJobOrder second = order("two", 1);
  first.door = second.door = 8000;
  submit(first);
  submit(second);
  EXPECT_EQ(job("two").why, "port 8000 of its routers is taken by another job on each node");
  join("b", 4);
  pass(milliseconds(200));
  EXPECT_EQ(job("two").launcher.node, "b");
}

TEST_F(KeeperTest, EachLauncherHasAPortOfItsOwn) {
  join("a", 4);
  for (const char* name : {"one", "two", "three"}) {
    submit(order(name, 1));
  }
  EXPECT_EQ(job("one").port, 7800U);
  EXPECT_EQ(job("two").port, 7801U);
  EXPECT_EQ(job("three").why,
            "all ports for launchers are taken: start the keeper with more (--ports)");
}

TEST_F(KeeperTest, AJobsNameIsTakenUntilItHasEnded) {
  join("a", 2);
  submit(order("one", 2));
  EXPECT_EQ(keeper_->objection(order("one", 2)),
            "a job of the name one is running: `pdjob cancel one` ends it");
  step(JobCancelled{"one"});
  EXPECT_EQ(keeper_->objection(order("one", 2)), "") << "it comes after the one that ends";
  submit(order("one", 2));
  EXPECT_EQ(job("one").why, "the job of its name before it still ends");
  const PoolJob before = keeper_->ledger().jobs.front();
  exits(before.launcher, "exit code 0");
  exits(before.shares.front().agent, "exit code 0");
  pass(milliseconds(200));
  EXPECT_EQ(state("one"), PoolJobState::kRunning);
}

TEST_F(KeeperTest, TheNextBatchOfTheNameStartsOnTheWarmWorkersOfTheLastOne) {
  join("a", 2);
  join("b", 2);
  submit(warm("rows", 4));
  const std::string key = keeper_->ledger().key_of(job("rows"));
  const PoolJob first = job("rows");
  done("rows");
  EXPECT_EQ(state("rows"), PoolJobState::kWarm);
  EXPECT_EQ(free_cores(), 0U);
  EXPECT_EQ(keeper_->objection(warm("rows", 4)), "");
  step(JobSubmitted{warm("rows", 4)});
  const auto effects = pass(milliseconds(200));
  EXPECT_EQ(keeper_->ledger().jobs.front().state, PoolJobState::kEnded);
  EXPECT_EQ(state("rows"), PoolJobState::kRunning);
  EXPECT_EQ(all_of<StartLauncher>(effects).size(), 1U);
  EXPECT_TRUE(all_of<StartShare>(effects).empty());
  EXPECT_TRUE(all_of<EndProcess>(effects).empty());
  EXPECT_EQ(job("rows").shares, first.shares);
  EXPECT_EQ(job("rows").launcher.node, first.launcher.node) << "where the workers' ledger is";
  EXPECT_EQ(job("rows").port, first.port);
  EXPECT_EQ(keeper_->ledger().key_of(job("rows")), key) << "its agents have it";
  step(JobCancelled{"rows"});
  let_end("rows");
  submit(warm("rows", 4));
  EXPECT_NE(keeper_->ledger().key_of(job("rows")), key);
}

TEST_F(KeeperTest, WarmWorkersEndWhenTheirTimeIsOver) {
  join("a", 4);
  submit(warm("rows", 2));
  done("rows");
  pass(minutes(10) - seconds(1));
  EXPECT_EQ(state("rows"), PoolJobState::kWarm);
  EXPECT_EQ(all_of<EndProcess>(pass(seconds(2))).size(), 1U);
  let_end("rows");
  EXPECT_EQ(state("rows"), PoolJobState::kEnded);
  EXPECT_EQ(job("rows").why, "done");
}

TEST_F(KeeperTest, AWarmJobEndsIfItIsCancelledOrLosesAProcess) {
  join("a", 4);
  submit(warm("one", 2));
  submit(warm("two", 2));
  done("one");
  done("two");
  step(JobCancelled{"one"});
  EXPECT_EQ(state("one"), PoolJobState::kEnding);
  EXPECT_EQ(job("one").why, "done");
  exits(PoolProcess(job("two").shares.front().agent), "signal 9 (Killed)");
  EXPECT_EQ(state("two"), PoolJobState::kEnded);
}

TEST_F(KeeperTest, WarmJobsGiveWayToWhoeverNeedsTheirRoomAndOnlyAsManyAsItTakes) {
  join("a", 4);
  for (const char* name : {"first", "second"}) {
    submit(warm(name, 2));
    done(name);
  }
  submit(batch("next", 2));
  EXPECT_EQ(state("first"), PoolJobState::kEnding) << "the oldest of them";
  EXPECT_EQ(state("second"), PoolJobState::kWarm);
  let_end("first");
  pass(milliseconds(200));
  EXPECT_EQ(state("next"), PoolJobState::kRunning);
  submit(order("online", 2));
  EXPECT_EQ(state("second"), PoolJobState::kEnding) << "before batches are preempted";
  EXPECT_EQ(state("next"), PoolJobState::kRunning);
}

TEST_F(KeeperTest, WarmJobsAlsoGiveTheirPortsAndCountForNoQuota) {
  join("a", 6);
  step(QuotaSet{{.queue = "default", .cores = 2}});
  submit(warm("one", 2));
  done("one");
  submit(warm("two", 2));
  EXPECT_EQ(state("two"), PoolJobState::kRunning);
  done("two");
  submit(warm("three", 2));
  EXPECT_EQ(state("one"), PoolJobState::kEnding) << "there are two ports";
  let_end("one");
  pass(milliseconds(200));
  EXPECT_EQ(state("three"), PoolJobState::kRunning);
}

TEST_F(KeeperTest, AJobThatNeedsOtherWorkersEndsTheWarmOnesOfItsNameFirst) {
  join("a", 4);
  submit(warm("rows", 2));
  done("rows");
  const PoolJob first = job("rows");
  submit(warm("rows", 3));
  EXPECT_EQ(state("rows"), PoolJobState::kQueued);
  exits(first.shares.front().agent, "exit code 0");
  pass(milliseconds(200));
  EXPECT_EQ(state("rows"), PoolJobState::kRunning);
  EXPECT_EQ(job("rows").shares.front().share.cores, 3U);
}

TEST_F(KeeperTest, TheNextKeeperHasTheWarmJobsOfTheLastOne) {
  join("a", 4);
  submit(warm("rows", 2));
  done("rows");
  const PoolJob before = job("rows");
  begin(*decode_pool_ledger(encode(keeper_->ledger())));
  join("a", 4, {{.incarnation = before.shares.front().agent.incarnation}});
  pass(minutes(5));
  EXPECT_EQ(state("rows"), PoolJobState::kWarm);
  submit(warm("rows", 2));
  EXPECT_EQ(state("rows"), PoolJobState::kRunning);
  EXPECT_EQ(job("rows").shares.front().agent.incarnation, before.shares.front().agent.incarnation);
}

TEST(PoolLedger, DamagedBytesAreRefused) {
  PoolLedger ledger{.build = "b", .keeper = 3, .root = "secret"};
  ledger.jobs.push_back(
      {.id = 1,
       .order = {.name = "one", .text = "name: one\n", .keep = minutes(1), .workers = "w"},
       .start = {1}});
  std::string bytes = encode(ledger);
  const auto decoded = decode_pool_ledger(bytes);
  ASSERT_TRUE(decoded);
  EXPECT_EQ(*decoded, ledger);
  bytes[bytes.size() / 2] ^= 1;
  EXPECT_EQ(decode_pool_ledger(bytes).error().code, ErrorCode::kCorrupt);
}

}  // namespace
}  // namespace pdjob::launcher
