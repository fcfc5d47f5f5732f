#include "launcher/run/ledger.h"

#include <gtest/gtest.h>

#include "tests/support/gpu_box.h"

namespace pdjob::launcher {
namespace {

using std::chrono::hours;
using std::chrono::minutes;
using std::chrono::seconds;

ProcessRecord changing_process() {
  ProcessRecord process;
  static_cast<ProcessPlan&>(process) = {.name = "decode-0",
                                        .role = net::Role::kDecode,
                                        .model = "m",
                                        .demand = {.cores = 1,
                                                   .gpus = 1,
                                                   .gpu_percent = 40,
                                                   .clusters = {"lab"},
                                                   .labels = {{"rack", "7"}},
                                                   .arrange = Arrange::kPack},
                                        .place = {"lab/a", {"0", "1"}}};
  process.state = ProcessState::kReady;
  process.fate = Fate::kChangeRole;
  process.next_role = net::Role::kPrefill;
  process.incarnation = {7};
  process.engine_id = "decode-0.ab12.7";
  process.restarts = 2;
  process.crashes = process.hangs = 1;
  process.entry = {.name = "decode-0",
                   .engine_id = "decode-0.ab12.7",
                   .role = net::Role::kDecode,
                   .host = "10.0.0.1",
                   .port = 4000,
                   .key = "secret"};
  return process;
}

JobLedger full_ledger() {
  return {.build = "1.0",
          .launcher = 3,
          .clock = hours(500000),
          .root = "0123456789abcdef",
          .nonce = "ab12",
          .control_port = 40000,
          .agent_port = 40001,
          .door_port = 8000,
          .batch_door_port = 8001,
          .config_source = "/home/u/job.yaml",
          .config_text = "name: j\n",
          .specs = {.launcher = "name: j\n",
                    .work = {{{net::Role::kRouter, ""}, "router: {}\n"},
                             {{net::Role::kDecode, "m"}, "model: m\n"}}},
          .stopping = true,
          .planned = true,
          .rollout = {.updates = 2, .versions = {{"default", "d0"}, {"step-1", "d1"}}},
          .stragglers = {.groups = {{"m decode", Instant(seconds(40)), seconds(240)}},
                         .replaced = {{"decode-0", "lab/a", Instant(seconds(30))}}},
          .scaling = {.notes = {{Instant(seconds(45)), "decode: from 1 to 2 workers\n"}},
                      .by_hand = {"decode"}},
          .plan_nodes = {{.name = "local",
                          .host = "127.0.0.1",
                          .cores = 2,
                          .gpus = {"0"},
                          .gpu_parts = {{"0", 40}}},
                         gpu_box("lab/b")},
          .job = {.ready = true,
                  .warm = true,
                  .incarnations_made = 7,
                  .nodes = {{.name = "lab/a",
                             .memory_bytes = 1ULL << 40,
                             .labels = {{"rack", "7"}, {"zone", "b"}},
                             .overcommits = true}},
                  .trust = {{"lab/a", 2.5, Instant(seconds(20))}},
                  .processes = {changing_process()}}};
}

TEST(JobLedger, SurvivesTheDisk) {
  for (const JobLedger& ledger : {full_ledger(), JobLedger{}}) {
    const auto read = decode_ledger(encode(ledger));
    ASSERT_TRUE(read) << read.error().message;
    EXPECT_EQ(*read, ledger);
  }
}

// The clocks of its launchers begin anywhere, for instance because the machine has started again.
TEST(JobLedger, TimesAreByTheClockOfTheLauncherThatGoesOn) {
  JobLedger ledger = full_ledger();
  const Instant now(hours(3));
  change_clock(ledger, ledger.clock - (now - Instant(seconds(50))), now);  // At its 50th second.
  EXPECT_EQ(ledger.job.trust[0].at, now - seconds(30));
  EXPECT_EQ(ledger.stragglers.replaced[0].at, now - seconds(20));
  EXPECT_EQ(ledger.stragglers.groups[0].next, now - seconds(10));
  EXPECT_EQ(ledger.scaling.notes[0].at, now - seconds(5));
  EXPECT_EQ(ledger.stragglers.groups[0].wait, seconds(240));
  const JobLedger before = ledger;
  change_clock(ledger, ledger.clock, now + minutes(1));
  EXPECT_EQ(ledger, before);
}

TEST(JobLedger, WhateverTimesItHasNothingThatWasIsLaterThanNow) {
  const Instant now(seconds(5));
  const Duration old[] = {Duration::min(), Duration(-1), Duration(), hours(1), Duration::max()};
  for (const Duration clock : old) {
    for (const Duration time : old) {
      JobLedger ledger = full_ledger();
      ledger.clock = clock;
      ledger.job.trust[0].at = ledger.stragglers.replaced[0].at = ledger.stragglers.groups[0].next =
          Instant(time);
      change_clock(ledger, hours(400000), now);
      EXPECT_LE(ledger.job.trust[0].at, now);
      EXPECT_GE(ledger.job.trust[0].at, now - hours(24));
      EXPECT_LE(ledger.stragglers.replaced[0].at, now);
      EXPECT_GE(ledger.stragglers.replaced[0].at, now - hours(24));
      EXPECT_LE(ledger.stragglers.groups[0].next, now + ReplacementPace::kWaitMax);
      EXPECT_GE(ledger.stragglers.groups[0].next, now - hours(24));
    }
  }
}

// Each change is a write to the disk.
TEST(JobLedger, DoesNotChangeBecauseTimePasses) {
  Job job({{.name = "decode-0", .role = net::Role::kDecode}}, {}, "n",
          {.nodes = {{.name = "a", .cores = 2}}});
  std::vector<Effect> effects;
  job.step(NodeBlamed{"a"}, Instant(seconds(10)), effects);
  JobLedger ledger;
  take(ledger, job);
  ASSERT_EQ(ledger.job.trust.size(), 1U);
  const std::string bytes = encode(ledger);
  job.step(TimePassed{}, Instant(minutes(5)), effects);
  take(ledger, job);
  EXPECT_EQ(encode(ledger), bytes);
}

// Labels, paths and numbers of processes that a job file or an agent may have.
TEST(JobLedger, HoldsWhateverAJobMayHave) {
  JobLedger ledger = full_ledger();
  ledger.plan_nodes.assign(kNodesMax, ledger.plan_nodes[0]);
  ledger.job.nodes.assign(kNodesMax, ledger.job.nodes[0]);
  ledger.job.processes.assign(2047 + 2047 + 64 + 1, ledger.job.processes[0]);
  ledger.job.processes[0].demand.labels["rack"] = std::string(limits::kConfigBytesMax, 'x');
  ledger.job.processes[0].demand.file = std::string(8192, 'm');
  const auto read = decode_ledger(encode(ledger));
  ASSERT_TRUE(read) << read.error().message;
  EXPECT_EQ(*read, ledger);
}

TEST(JobLedger, ADamagedOneIsRefused) {
  const std::string whole = encode(full_ledger());
  for (size_t i = 0; i < whole.size(); ++i) {
    std::string damaged = whole;
    damaged[i] = static_cast<char>(damaged[i] ^ 1);
    EXPECT_FALSE(decode_ledger(damaged)) << i;
    EXPECT_FALSE(decode_ledger(whole.substr(0, i))) << i;
  }
  EXPECT_FALSE(decode_ledger(whole + "x"));
}

TEST(JobLedger, AnEngineIsOnDiskBeforeAnybodyIsToldToBecomeIt) {
  const Job job({}, {}, "n");
  const net::Drain changes{.deadline_ms = 1, .next = {.engine_id = "decode-0.n.7"}};
  const Event heartbeat = MessageArrived{"decode-0", net::HeartbeatSent{}};
  EXPECT_EQ(ledger_due(job, Started{}, {Spawn{}}), LedgerDue::kBefore);
  EXPECT_EQ(ledger_due(job, TimePassed{}, {Send{"decode-0", changes}}), LedgerDue::kBefore);
  EXPECT_EQ(ledger_due(job, heartbeat, {Send{"decode-0", changes}}), LedgerDue::kBefore);
  EXPECT_EQ(ledger_due(job, TimePassed{}, {Send{"router-0", net::Membership{}}}), LedgerDue::kSoon);
  EXPECT_EQ(ledger_due(job, heartbeat, {}), LedgerDue::kNever);
}

// A launcher died just after its workers had left, and the next one sent requests to them.
TEST(JobLedger, AProcessLeavesOnlyWhenThisIsOnDisk) {
  const Job job({{.name = "decode-0", .role = net::Role::kDecode}}, {}, "n");
  const net::Drain leaves{.deadline_ms = 1};
  EXPECT_EQ(ledger_due(job, TimePassed{}, {Send{"decode-0", leaves}}), LedgerDue::kBefore);
  EXPECT_EQ(ledger_due(job, GroupsChanged{}, {}), LedgerDue::kBefore);
  EXPECT_EQ(ledger_due(job, ReplaceAsked{"decode-0"}, {}), LedgerDue::kBefore);
}

}  // namespace
}  // namespace pdjob::launcher
