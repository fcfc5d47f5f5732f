#include "launcher/scaling/autoscaler.h"

#include <functional>

#include <gtest/gtest.h>

#include "tests/unit/launcher/scaling/plant.h"

namespace pdjob::launcher {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

std::vector<ScaledGroup> both_groups(uint32_t most = 12) {
  const GroupScaling prefill{
      .workers_max = most, .ttft = milliseconds(500), .down_after = seconds(20)};
  const GroupScaling decode{
      .workers_max = most, .itl = milliseconds(80), .down_after = seconds(20)};
  return {{.name = "prefill", .role = net::Role::kPrefill, .model = "m", .scaling = prefill},
          {.name = "decode", .role = net::Role::kDecode, .model = "m", .scaling = decode}};
}

Observation idle(uint32_t prefill, uint32_t decode) {
  return {.groups = {{.wanted = prefill}, {.wanted = decode}}};
}

struct Outcome {
  double seconds = 0;
  double slo_seconds = 0;  // Both latencies within their targets, or no request.
  double worker_seconds = 0;
  uint32_t turns = 0;       // A group that grew shrinks, or the other way round.
  uint32_t late_turns = 0;  // In the second half.
  uint32_t most[2] = {};
  uint32_t least[2] = {1000, 1000};
  std::vector<Decision> decisions;
};

// `rate`: requests per second at each second.
Outcome run(Plant& plant, Autoscaler& scaler, int length, const std::function<double(int)>& rate) {
  Outcome outcome;
  int last[2] = {};
  const double before = plant.worker_seconds;
  for (int second = 0; second < length; ++second) {
    for (int half = 0; half < 2; ++half) {
      for (int i = 0; i < 10; ++i) {
        plant.advance(rate(second));
      }
      const std::vector<Decision> decisions = scaler.step(plant.look(), plant.now);
      plant.apply(decisions);
      for (const Decision& each : decisions) {
        const int way = each.to > each.from ? 1 : each.to < each.from ? -1 : 0;
        const uint32_t turns = way * last[each.group] < 0 ? 1 : 0;
        outcome.turns += turns;
        outcome.late_turns += second > length / 2 ? turns : 0;
        last[each.group] = way == 0 ? last[each.group] : way;
        outcome.decisions.push_back(each);
      }
      for (int group = 0; group < 2; ++group) {
        outcome.most[group] = std::max(outcome.most[group], plant.wanted[group]);
        outcome.least[group] = std::min(outcome.least[group], plant.wanted[group]);
      }
    }
    outcome.seconds += 1;
    outcome.slo_seconds += plant.take_ttft() <= 0.5 && plant.take_itl() <= 0.08 ? 1 : 0;
  }
  outcome.worker_seconds = plant.worker_seconds - before;
  return outcome;
}

// Load 1 to 10 and back. A static job for the peak would have `most` workers all the time.
TEST(Autoscaler, ARampUpAndDownHoldsTheTargetsWithFewWorkerSeconds) {
  double held = 0;
  double cost = 0;
  constexpr int kRuns = 10;
  for (uint64_t seed = 1; seed <= kRuns; ++seed) {
    Plant plant({}, seed, 1, 1);
    Autoscaler scaler(both_groups(), {});
    const Outcome outcome = run(plant, scaler, 600, [](int second) {
      const double top = second < 300 ? second / 300.0 : (600 - second) / 300.0;
      return 1.5 * (1 + 9 * top);
    });
    held += outcome.slo_seconds / outcome.seconds / kRuns;
    cost += outcome.worker_seconds / (600.0 * (outcome.most[0] + outcome.most[1])) / kRuns;
    EXPECT_LE(outcome.turns, 6U) << seed;  // Up and down, for two groups, and few corrections.
    EXPECT_GE(outcome.most[1], 8U);
    EXPECT_LE(plant.wanted[0] + plant.wanted[1], 7U) << "it came down";
  }
  EXPECT_GE(held, 0.95);
  EXPECT_LE(cost, 0.75);
  RecordProperty("held", std::to_string(held));
  RecordProperty("cost", std::to_string(cost));
}

TEST(Autoscaler, ASteadyLoadIsNotAnsweredWithMovingSizes) {
  Random random(3);
  constexpr uint32_t kSeeds = 40;
  uint32_t turns = 0;
  for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
    const PlantSpec spec{.prompt_tokens = 20 + 200 * random.unit(),
                         .output_tokens = 10 + 100 * random.unit(),
                         .itl_alone = random.unit() * 0.02,
                         .itl_per_request = 0.002 + random.unit() * 0.015,
                         .start_time = seconds(1 + random.below(15))};
    Plant plant(spec, seed, 1, 1);
    Autoscaler scaler(both_groups(), {});
    const double rate = 0.5 + random.unit() * 6;
    const Outcome outcome = run(plant, scaler, 900, [&](int) { return rate; });
    EXPECT_LE(outcome.late_turns, 6U) << "seed " << seed << ": of both groups in 450 s";
    turns += outcome.late_turns;
  }
  EXPECT_LE(turns, 2 * kSeeds);
}

// They do not tell how fast they compute: what was too few workers once is remembered.
TEST(Autoscaler, ASteadyLoadOfEnginesOfAnotherMakeIsNotAnsweredWithMovingSizesEither) {
  constexpr uint32_t kSeeds = 10;
  uint32_t turns = 0;
  for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
    const PlantSpec spec{.prompt_tokens = 200, .start_time = seconds(30), .tells_speed = false};
    Plant plant(spec, seed, 1, 8);
    std::vector<ScaledGroup> groups = both_groups();
    groups[Plant::kDecode].scaling = {};
    Autoscaler scaler(groups, {});
    const Outcome outcome = run(plant, scaler, 3600, [](int) { return 6.0; });
    EXPECT_GE(plant.wanted[Plant::kPrefill], 2U) << seed;
    turns += outcome.late_turns;
  }
  EXPECT_LE(turns, 3 * kSeeds) << "in half an hour";
  RecordProperty("turns", std::to_string(turns));
}

TEST(Autoscaler, EnginesOfAnotherMakeLeaveWhenTheLoadFalls) {
  Plant plant({.prompt_tokens = 200, .tells_speed = false}, 3, 1, 1);
  Autoscaler scaler(both_groups(), {});
  const Outcome outcome =
      run(plant, scaler, 900, [](int second) { return second < 300 ? 8.0 : 1; });
  EXPECT_GE(outcome.most[Plant::kPrefill], 2U);
  EXPECT_EQ(plant.wanted[Plant::kPrefill], 1U);
}

// A short ramp leaves no time to wait and see.
TEST(Autoscaler, AShortRampHoldsTheTargetsToo) {
  double held = 0;
  constexpr int kRuns = 20;
  for (uint64_t seed = 1; seed <= kRuns; ++seed) {
    Plant plant({}, seed, 1, 1);
    Autoscaler scaler(both_groups(), {});
    const Outcome outcome = run(plant, scaler, 180, [](int second) {
      const double top = second < 90 ? second / 90.0 : (180 - second) / 90.0;
      return 1.5 * (1 + 9 * top);
    });
    held += outcome.slo_seconds / outcome.seconds / kRuns;
  }
  EXPECT_GE(held, 0.93);
}

TEST(Autoscaler, ALateMeanOfFewRequestsIsNoReasonToGrow) {
  for (const uint64_t requests : {2U, 200U}) {
    Autoscaler scaler(both_groups(), {});
    Instant now(seconds(1000));
    Observation seen = idle(1, 1);
    uint64_t finished = 0;
    size_t grown = 0;
    for (int i = 0; i < 40; ++i, now += milliseconds(500)) {
      finished += i == 30 ? requests : 0;
      seen.groups[0].workers = {{"e",
                                 {.tokens_computed = 10 * finished,
                                  .busy_us = 100 * finished,
                                  .ttft_sum_us = 600'000 * finished,
                                  .ttft_count = finished}}};
      grown += scaler.step(seen, now).size();
    }
    EXPECT_EQ(grown > 0, requests > 100) << requests;
  }
}

TEST(Autoscaler, NoBoundBudgetOrRatioIsEverBroken) {
  Random random(5);
  for (uint64_t seed = 1; seed <= 60; ++seed) {
    std::vector<ScaledGroup> groups = both_groups(static_cast<uint32_t>(2 + random.below(8)));
    groups[0].scaling.workers_min = groups[1].scaling.workers_min =
        static_cast<uint32_t>(1 + random.below(2));
    groups[0].gpu_percent = 50;
    groups[1].gpu_percent = 100;
    const JobScalingConfig limits{.workers_max = static_cast<uint32_t>(4 + random.below(8)),
                                  .gpus_max = static_cast<uint32_t>(4 + random.below(8)),
                                  .prefill_per_decode_max = random.chance(0.5) ? 2.0 : 0.0};
    Plant plant({}, seed, groups[0].scaling.workers_min, groups[0].scaling.workers_min);
    Autoscaler scaler(groups, limits);
    for (int i = 0; i < 4000; ++i) {
      plant.advance(i % 1600 < 800 ? 12 : 0.3);
      if (i % 10 == 0) {
        plant.apply(scaler.step(plant.look(), plant.now));
      }
      const uint32_t p = plant.wanted[0];
      const uint32_t d = plant.wanted[1];
      ASSERT_TRUE(p >= groups[0].scaling.workers_min && p <= groups[0].scaling.workers_max) << seed;
      ASSERT_TRUE(d >= groups[1].scaling.workers_min && d <= groups[1].scaling.workers_max) << seed;
      ASSERT_LE(p + d, limits.workers_max) << seed;
      ASSERT_LE(50 * p + 100 * d, 100 * limits.gpus_max) << seed;
      ASSERT_TRUE(limits.prefill_per_decode_max == 0 || p <= 2 * d) << seed;
    }
  }
}

TEST(Autoscaler, NoRoleStarvesUnderABudgetThatIsTooSmall) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    Plant plant({.prompt_tokens = 400}, seed, 1, 1);
    Autoscaler scaler(both_groups(), {.workers_max = 6});
    run(plant, scaler, 120, [](int) { return 20.0; });
    EXPECT_GE(plant.wanted[0], 2U) << seed;
    EXPECT_GE(plant.wanted[1], 1U) << seed;
    EXPECT_GT(plant.finished, 0U);
  }
}

TEST(Autoscaler, AllRequestsOfABurstAreAnsweredAndTheWorkersLeave) {
  Plant plant({}, 9, 1, 1);
  Autoscaler scaler(both_groups(), {});
  run(plant, scaler, 300, [](int second) { return second < 40 ? 20.0 : 0.0; });
  EXPECT_EQ(plant.finished, plant.arrived);
  EXPECT_EQ(plant.wanted[0], 1U);
  EXPECT_EQ(plant.wanted[1], 1U);
}

// The load moves from long prompts to long outputs: no worker is added.
TEST(Autoscaler, AWorkerThatOneRoleCanSpareGoesToTheOtherBeforeANewOneComes) {
  Plant plant({.prompt_tokens = 20, .output_tokens = 100}, 4, 4, 1);
  std::vector<ScaledGroup> groups = both_groups();
  groups[0].scaling.down_after = seconds(300);  // It would keep them.
  Autoscaler scaler(groups, {});
  const Outcome outcome =
      run(plant, scaler, 60, [](int second) { return second < 15 ? 0.3 : 2.5; });
  const auto taken = std::ranges::find_if(outcome.decisions, [](const Decision& each) {
    return each.group == Plant::kDecode && each.to > each.from;
  });
  ASSERT_NE(taken, outcome.decisions.end());
  EXPECT_TRUE(taken->reason.starts_with("takes a worker of prefill: ")) << taken->reason;
}

// There is room for four workers. Prompts want a third prefill worker, which has no place. Then
// outputs want a third decode worker.
TEST(Autoscaler, AWorkerWithoutAPlaceKeepsNobodyFromHelpingTheOtherRole) {
  Plant plant({.prompt_tokens = 400, .output_tokens = 5}, 4, 2, 2);
  plant.room = 4;
  std::vector<ScaledGroup> groups = both_groups();
  groups[0].scaling.workers_min = groups[1].scaling.workers_min = 2;  // Nobody can lend at first.
  Autoscaler first(groups, {});
  run(plant, first, 30, [](int) { return 8.0; });
  ASSERT_GE(plant.waiting(Plant::kPrefill), 1U);
  plant.spec = {.prompt_tokens = 20, .output_tokens = 100};
  Autoscaler scaler(both_groups(), {});
  run(plant, scaler, 240, [](int) { return 3.0; });
  EXPECT_EQ(plant.placed(Plant::kPrefill), 1U);
  EXPECT_EQ(plant.placed(Plant::kDecode), 3U);
}

TEST(Autoscaler, ARoleThatIsLateGetsAWorkerWhileTheOtherRoleHasIdleOnes) {
  constexpr double kAtMost = 100;  // A group that had to be patient lends after 80 s.
  Random random(11);
  for (uint64_t seed = 1; seed <= 25; ++seed) {
    Plant plant({}, seed, 1, 1);
    plant.room = 2 + random.below(5);
    Autoscaler scaler(both_groups(), {});
    double starved[2] = {};
    uint64_t placed[2] = {1, 1};
    for (int phase = 0; phase < 6; ++phase) {
      plant.spec.prompt_tokens = random.chance(0.5) ? 20 : 400;
      plant.spec.output_tokens = random.chance(0.5) ? 5 : 100;
      const double rate = 0.3 + 6 * random.unit();
      for (int half_second = 0; half_second < 400; ++half_second) {
        for (int i = 0; i < 10; ++i) {
          plant.advance(rate);
        }
        plant.apply(scaler.step(plant.look(), plant.now));
        const double use[2] = {plant.take_use(Plant::kPrefill), plant.take_use(Plant::kDecode)};
        const bool late[2] = {use[Plant::kPrefill] > 0.9, plant.take_itl() > 0.08};
        for (const Plant::Role role : {Plant::kPrefill, Plant::kDecode}) {
          const auto other = static_cast<Plant::Role>(1 - role);
          const bool can_help = plant.placed(other) > 1 && use[other] < 0.2;
          const bool same = plant.placed(role) == std::exchange(placed[role], plant.placed(role));
          const bool starves = same && plant.waiting(role) > 0 && late[role] && can_help;
          starved[role] = starves ? starved[role] + 0.5 : 0;
          ASSERT_LE(starved[role], kAtMost)
              << "role " << role << ", seed " << seed << ", phase " << phase;
        }
      }
    }
  }
}

// So many clients, each of which sends its next request when the last one is answered. Returns the
// most workers of both groups.
uint32_t most_for_clients(uint64_t clients, const PlantSpec& work, uint64_t seed) {
  Plant plant(work, seed, 1, 1);
  Autoscaler scaler(both_groups(), {});
  uint32_t most = 0;
  for (int i = 0; i < 6000; ++i) {
    while (plant.arrived - plant.finished < clients) {
      plant.send();
    }
    plant.advance(0);
    if (i % 10 == 0) {
      plant.apply(scaler.step(plant.look(), plant.now));
    }
    most = std::max({most, plant.wanted[Plant::kPrefill], plant.wanted[Plant::kDecode]});
  }
  EXPECT_GT(plant.finished, 0U);
  return most;
}

// Regression: one client with long prompts made a group grow from 1 to 5.
TEST(Autoscaler, MoreWorkersThanClientsWhoWaitForEachAnswerNeverCome) {
  for (uint64_t seed = 1; seed <= 4; ++seed) {
    for (const double prompt : {50.0, 400.0, 4000.0, 20000.0}) {
      for (const bool tells : {true, false}) {
        const PlantSpec work{.prompt_tokens = prompt, .itl_alone = 0.1, .tells_speed = tells};
        EXPECT_EQ(most_for_clients(1, work, seed), 1U) << prompt << ", seed " << seed;
        EXPECT_LE(most_for_clients(3, work, seed), 3U) << prompt << ", seed " << seed;
      }
    }
  }
}

TEST(Autoscaler, SaysThatMoreWorkersWouldNotHelp) {
  Plant plant({.prompt_tokens = 4000}, 3, 1, 1);
  Autoscaler scaler(both_groups(), {});
  std::vector<std::string> told;
  for (int i = 0; i < 3000; ++i) {
    if (plant.arrived == plant.finished) {
      plant.send();
    }
    plant.advance(0);
    for (const Decision& each :
         i % 10 == 0 ? scaler.step(plant.look(), plant.now) : std::vector<Decision>()) {
      EXPECT_EQ(each.from, each.to);
      told.push_back(each.reason);
    }
  }
  ASSERT_FALSE(told.empty());
  EXPECT_TRUE(told.front().ends_with("; no request waits, so more workers would not help"))
      << told.front();
}

// --- single decisions

TEST(Autoscaler, WithoutRequestsAllWorkersEndAndTheNextRequestBringsThemBack) {
  Autoscaler scaler(both_groups(), {.zero_after = seconds(30)});
  const Instant start(seconds(1000));
  EXPECT_TRUE(scaler.step(idle(1, 1), start).empty());
  EXPECT_TRUE(scaler.step(idle(1, 1), start + seconds(29)).empty());
  std::vector<Decision> decisions = scaler.step(idle(1, 1), start + seconds(31));
  ASSERT_EQ(decisions.size(), 2U);
  EXPECT_EQ(decisions[0].to, 0U);
  EXPECT_EQ(decisions[0].reason, "no request for 30 s");
  EXPECT_TRUE(scaler.step(idle(0, 0), start + seconds(100)).empty());
  Observation asked = idle(0, 0);
  asked.held = asked.alive = 2;
  decisions = scaler.step(asked, start + seconds(101));
  ASSERT_EQ(decisions.size(), 2U);
  EXPECT_EQ(decisions[1].to, 1U);
  EXPECT_EQ(decisions[1].reason, "2 requests wait at a router");
}

TEST(Autoscaler, ARequestThatRunsKeepsTheWorkers) {
  Autoscaler scaler(both_groups(), {.zero_after = seconds(30)});
  const Instant start(seconds(1000));
  Observation seen = idle(1, 1);
  seen.alive = 1;
  EXPECT_TRUE(scaler.step(seen, start).empty());
  EXPECT_TRUE(scaler.step(seen, start + seconds(300)).empty());
}

TEST(Autoscaler, ASizeThatAPersonSetStays) {
  Autoscaler scaler(both_groups(), {});
  const Instant start(seconds(1000));
  Observation seen = idle(1, 5);
  seen.groups[1].by_hand = true;
  for (int i = 0; i < 300; ++i) {
    EXPECT_TRUE(scaler.step(seen, start + seconds(i)).empty());
  }
}

TEST(Autoscaler, DemandWithoutAPlaceIsToldOnceAndKeptUntilANodeJoins) {
  Autoscaler scaler(both_groups(), {});
  Instant now(seconds(1000));
  uint64_t tokens = 0;
  int told = 0;
  Observation seen = idle(1, 2);
  seen.groups[1].waiting = 1;
  seen.groups[1].lack = "node a lacks 1 core";
  for (int i = 0; i < 20; ++i, now += milliseconds(500)) {
    tokens += 50;
    seen.groups[1].workers = {{"e",
                               {.requests_running = 30,
                                .tokens_computed = tokens,
                                .busy_us = tokens * 10000,
                                .itl_sum_us = tokens * 300000,
                                .itl_count = tokens}}};
    for (const Decision& each : scaler.step(seen, now)) {
      ++told;
      EXPECT_EQ(each.from, each.to);
      EXPECT_TRUE(each.reason.ends_with("; but one has no place: node a lacks 1 core"))
          << each.reason;
    }
  }
  EXPECT_EQ(told, 1);
}

}  // namespace
}  // namespace pdjob::launcher
