#include "launcher/scaling/stragglers.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include <gtest/gtest.h>

#include "common/random.h"

namespace pdjob::launcher {
namespace {

using std::chrono::milliseconds;
using std::chrono::minutes;
using std::chrono::seconds;

// What each measure of a step costs, in microseconds.
struct Cost {
  double step = 1000, token = 50, row = 0.05, output = 20;
};

// One group of workers. Each has a speed and a mix of work of its own.
struct Plant {
  struct Worker {
    double slow = 1;
    double steps = 40;                             // A second.
    double tokens = 16, rows = 2000, outputs = 4;  // Of a step.
    std::string node = "n0";
    std::string kind = "k";
    std::string engine_id = "1";
    net::StepTotals totals;
  };

  explicit Plant(size_t count, const StragglerConfig& with = {})
      : config(with), workers(count), stragglers(with) {
    for (size_t i = 0; i < count; ++i) {
      workers[i].node = "n" + std::to_string(i);
    }
  }

  void work(Worker& worker, double passed) const {
    const double steps = worker.steps * passed;
    worker.totals.add(
        {.us = static_cast<uint64_t>(worker.slow * steps *
                                     (cost.step + worker.tokens * cost.token +
                                      worker.rows * cost.row + worker.outputs * cost.output)),
         .steps = static_cast<uint64_t>(steps),
         .tokens = static_cast<uint64_t>(steps * worker.tokens),
         .rows_read = static_cast<uint64_t>(steps * worker.rows),
         .outputs = static_cast<uint64_t>(steps * worker.outputs)});
  }

  // Runs for so long, or until a worker is slow.
  std::optional<SlowWorker> run(Duration duration) {
    for (const Instant end = now + duration; now < end;) {
      now += milliseconds(500);
      PeerGroup group{.name = "g", .whole = whole, .workers = {}};
      for (size_t i = 0; i < workers.size(); ++i) {
        work(workers[i], 0.5);
        group.workers.push_back({.name = "w" + std::to_string(i),
                                 .engine_id = workers[i].engine_id,
                                 .node = workers[i].node,
                                 .kind = workers[i].kind,
                                 .steps = workers[i].totals});
      }
      if (!stragglers->due(now)) {
        continue;
      }
      const auto slow = stragglers->step({group}, now, [this](const auto&) { return room; });
      if (!slow.empty()) {
        EXPECT_EQ(slow.size(), 1U);
        return slow.front();
      }
    }
    return std::nullopt;
  }
  // A new process takes the place of a worker.
  void replace(size_t index) {
    workers[index].engine_id += '\'';
    workers[index].totals = {};
  }

  // The launcher dies, and another one goes on.
  void next_launcher() {
    const StragglerRecord record = stragglers->record();
    stragglers.emplace(config, record);
    EXPECT_EQ(stragglers->record(), record);
  }

  StragglerConfig config;
  Cost cost;
  std::vector<Worker> workers;
  std::optional<Stragglers> stragglers;
  Instant now{seconds(1000)};
  bool whole = true;
  bool room = false;
};

std::string name_of(const std::optional<SlowWorker>& slow) { return slow ? slow->name : "nobody"; }

TEST(Stragglers, AWorkerThatIsSlowForLongIsReplaced) {
  Plant plant(3);
  plant.workers[1].slow = 4;
  EXPECT_EQ(name_of(plant.run(seconds(60))), "nobody") << "its first slice only begins";
  const auto slow = plant.run(seconds(20));
  EXPECT_EQ(name_of(slow), "w1");
  EXPECT_TRUE(slow->replace);
  EXPECT_EQ(slow->node, "n1");
  EXPECT_NEAR(slow->slowness, 4, 0.01);
  EXPECT_EQ(slow->reason,
            "takes at least 4.0 times as long as most of its group for the same work, for 60 s");
  EXPECT_NEAR(plant.stragglers->slowness("w1"), 4, 0.01);
  EXPECT_LT(plant.stragglers->slowness("w0"), 1.01);
  EXPECT_EQ(plant.stragglers->slowness("nobody"), 0);
}

TEST(Stragglers, AWorkerBelowTheFactorStays) {
  Plant plant(5);
  plant.workers[0].slow = 2.9;
  EXPECT_EQ(name_of(plant.run(minutes(30))), "nobody");
}

TEST(Stragglers, TheFactorZeroTurnsItOff) {
  Plant plant(5, {.factor = 0});
  plant.workers[0].slow = 100;
  EXPECT_EQ(name_of(plant.run(minutes(30))), "nobody");
}

TEST(Stragglers, TwoWorkersJudgeNothing) {
  Plant plant(2);
  plant.workers[0].slow = 100;
  EXPECT_EQ(name_of(plant.run(minutes(30))), "nobody");
  EXPECT_EQ(plant.stragglers->slowness("w0"), 0) << "unknown";
}

TEST(Stragglers, WhereHalfOfTheGroupIsSlowNobodyIs) {
  for (const size_t count : {4U, 6U}) {
    Plant plant(count);
    for (size_t i = 0; i < count / 2; ++i) {
      plant.workers[i].slow = 10;
    }
    EXPECT_EQ(name_of(plant.run(minutes(30))), "nobody") << count;
  }
  Plant plant(5);
  plant.workers[0].slow = 10;
  plant.workers[3].slow = 12;
  EXPECT_EQ(name_of(plant.run(minutes(30))), "w3") << "the slowest one first";
}

TEST(Stragglers, WhereAllAreSlowAtOnceNobodyIs) {
  Plant plant(4);
  EXPECT_EQ(name_of(plant.run(minutes(2))), "nobody");
  for (Plant::Worker& worker : plant.workers) {
    worker.slow = 20;
  }
  EXPECT_EQ(name_of(plant.run(minutes(30))), "nobody");
}

TEST(Stragglers, AShortSlownessIsForgiven) {
  Plant plant(4);
  for (int i = 0; i < 20; ++i) {
    plant.workers[2].slow = 20;
    EXPECT_EQ(name_of(plant.run(seconds(40))), "nobody");
    plant.workers[2].slow = 1;
    EXPECT_EQ(name_of(plant.run(seconds(30))), "nobody");
  }
}

TEST(Stragglers, WorkersOnUnequalNodesAreNoPeers) {
  Plant plant(6);
  for (size_t i = 0; i < 2; ++i) {  // Two nodes of another kind, which are slow.
    plant.workers[i].slow = 8;
    plant.workers[i].kind = "old";
  }
  EXPECT_EQ(name_of(plant.run(minutes(30))), "nobody");
  plant.workers[5].slow = 8;
  EXPECT_EQ(name_of(plant.run(minutes(30))), "w5");
}

TEST(Stragglers, FewStepsSayNothing) {
  Plant plant(3);
  plant.workers[1].slow = 50;
  plant.workers[1].steps = 0.4;  // Six in a slice.
  EXPECT_EQ(name_of(plant.run(minutes(30))), "nobody");
  plant.workers[1].steps = 40;
  plant.workers[0].steps = plant.workers[2].steps = 1;  // They are hardly busy.
  EXPECT_EQ(name_of(plant.run(minutes(30))), "nobody");
}

TEST(Stragglers, EnginesThatReportNoStepsAreNotJudged) {
  Plant plant(4);
  for (Plant::Worker& worker : plant.workers) {
    worker.steps = 0;
  }
  EXPECT_EQ(name_of(plant.run(minutes(30))), "nobody");
}

TEST(Stragglers, LongPromptsAndLargeBatchesAreNotSlow) {
  Plant plant(4);
  plant.workers[0].tokens = 512;    // Prompts in large chunks: much time for a step, little for
  plant.workers[1].tokens = 1;      // a token. The opposite.
  plant.workers[2].rows = 2000000;  // Long contexts.
  plant.workers[3].outputs = 64;    // Many sequences decode.
  plant.workers[3].tokens = 64;
  EXPECT_EQ(name_of(plant.run(minutes(30))), "nobody");
}

// Whatever the mixes of work are, and whatever work costs.
TEST(Stragglers, NoMixOfWorkMakesAWorkerLookSlow) {
  for (uint64_t seed = 1; seed <= 1000; ++seed) {
    Random random(mix(seed));
    const auto any = [&random](double low, double high) {  // Of any order of magnitude.
      return low * std::pow(high / low, random.unit());
    };
    const auto or_none = [&](double low, double high) {
      return random.chance(0.2) ? 0 : any(low, high);
    };
    Plant plant(3 + random.below(4), {.factor = 1.5, .after = seconds(4)});
    plant.cost = {.step = or_none(10, 1e5),
                  .token = or_none(1, 1e4),
                  .row = or_none(1e-4, 10),
                  .output = or_none(1, 1e4)};
    for (int i = 0; i < 12; ++i) {
      for (Plant::Worker& worker : plant.workers) {
        if (i % 6 == 0 || random.chance(0.3)) {
          worker.steps = any(20, 2000);
          worker.tokens = any(1, 4096);
          worker.rows = or_none(1, 1e7);
          worker.outputs = or_none(1, 256);
        }
      }
      const auto slow = plant.run(seconds(2));
      ASSERT_EQ(name_of(slow), "nobody") << "seed " << seed << ", " << slow->slowness;
    }
  }
}

// Under a router, workers of a group have work of about the same kind.
TEST(Stragglers, ASlowWorkerIsFoundThoughNoTwoMixesAreEqual) {
  for (uint64_t seed = 1; seed <= 300; ++seed) {
    Random random(mix(seed));
    Plant plant(3 + random.below(6));
    const size_t straggler = random.below(plant.workers.size());
    for (Plant::Worker& worker : plant.workers) {
      worker.steps *= 0.5 + random.unit();
      worker.tokens *= 0.8 + 0.4 * random.unit();
      worker.rows *= 0.7 + 0.6 * random.unit();
      worker.outputs *= 0.8 + 0.4 * random.unit();
    }
    plant.workers[straggler].slow = 7;
    ASSERT_EQ(name_of(plant.run(minutes(2))), "w" + std::to_string(straggler)) << "seed " << seed;
  }
}

TEST(Stragglers, AGroupWaitsUntilItIsWhole) {
  Plant plant(3);
  plant.workers[1].slow = 4;
  plant.whole = false;
  EXPECT_EQ(name_of(plant.run(minutes(10))), "nobody");
  plant.whole = true;
  EXPECT_EQ(name_of(plant.run(seconds(16))), "w1") << "it was slow all the time";
}

TEST(Stragglers, ReplacementsOfAGroupComeOneByOneAndEverLater) {
  Plant plant(7);
  for (size_t i = 0; i < 3; ++i) {
    plant.workers[i].slow = 10;
  }
  Duration before{};
  for (int i = 0; i < 5; ++i) {
    const Instant began = plant.now;
    const auto slow = plant.run(minutes(200));
    ASSERT_TRUE(slow && slow->replace);
    const size_t index = slow->name.back() - '0';
    plant.replace(index);
    plant.workers[index].node += '\'';  // It is slow on each node.
    const Duration waited = plant.now - began;
    EXPECT_GE(waited, i == 0 ? Duration(seconds(60))
                             : std::max(2 * before - seconds(40), Duration(minutes(2))));
    before = waited;
  }
}

TEST(Stragglers, TheWaitFallsBackAfterAWhileWithoutASlowWorker) {
  Plant plant(3);
  for (int i = 0; i < 4; ++i) {
    plant.workers[1].slow = 10;
    ASSERT_EQ(name_of(plant.run(minutes(2))), "w1") << i;
    plant.replace(1);
    plant.workers[1].slow = 1;
    plant.workers[1].node += '\'';
    ASSERT_EQ(name_of(plant.run(minutes(30))), "nobody");
  }
}

TEST(Stragglers, ASuccessorThatIsSlowOnTheSameNodeLeavesItOnlyForAnotherNode) {
  Plant plant(3);
  plant.workers[1].slow = 10;
  auto slow = plant.run(minutes(2));
  ASSERT_TRUE(slow && slow->replace);
  plant.replace(1);
  uint32_t told = 0;
  for (const Instant end = plant.now + minutes(25); plant.now < end;) {
    slow = plant.run(minutes(1));
    ASSERT_TRUE(!slow || !slow->replace);
    told += slow ? 1 : 0;
  }
  EXPECT_GE(told, 2U);
  EXPECT_LE(told, 4U);
  plant.room = true;
  slow = plant.run(minutes(60));
  ASSERT_TRUE(slow && slow->replace);
  EXPECT_NE(slow->reason.find("The worker before it on node n1 was slow, too"), std::string::npos);
}

TEST(Stragglers, LaunchersThatDieReplaceNoMoreWorkers) {
  uint32_t replaced = 0;
  Plant plant(3);
  plant.workers[1].slow = 10;
  for (int launcher = 0; launcher < 80; ++launcher, plant.next_launcher()) {
    for (const Instant end = plant.now + seconds(90); plant.now < end;) {
      if (const auto slow = plant.run(end - plant.now)) {
        ASSERT_TRUE(slow->replace);
        ++replaced;
        plant.replace(1);
        plant.workers[1].node += '\'';  // It is slow on each node.
      }
    }
  }
  EXPECT_GE(replaced, 4U);
  EXPECT_LE(replaced, 7U) << "in two hours, after 2, 4, 8, 16, 32 and 60 minutes";
}

TEST(Stragglers, AnotherLauncherKnowsWhichNodeMadeAWorkerSlow) {
  Plant plant(3);
  plant.workers[1].slow = 10;
  auto slow = plant.run(minutes(2));
  ASSERT_TRUE(slow && slow->replace);
  plant.replace(1);
  plant.next_launcher();
  slow = plant.run(minutes(10));
  ASSERT_EQ(name_of(slow), "w1");
  EXPECT_FALSE(slow->replace) << "no other node has room";
}

TEST(Stragglers, ARecordMayHoldAnything) {
  for (const Duration wait : {Duration::min(), Duration(-1), Duration(), Duration::max()}) {
    Plant plant(3);
    plant.workers[1].slow = 10;
    plant.stragglers.emplace(plant.config,
                             StragglerRecord{.groups = {{.name = "g", .wait = wait}},
                                             .replaced = {{.worker = "", .node = ""}}});
    for (int i = 0; i < 3; ++i) {
      ASSERT_EQ(name_of(plant.run(minutes(90))), "w1") << i;
    }
  }
}

TEST(Stragglers, ANewEngineBeginsAnew) {
  Plant plant(3);
  plant.workers[1].slow = 10;
  for (int i = 0; i < 20; ++i) {
    EXPECT_EQ(name_of(plant.run(seconds(55))), "nobody");
    plant.replace(1);
  }
}

TEST(Stragglers, APauseOfTheLauncherIsNoSlice) {
  Plant plant(3);
  plant.workers[1].slow = 10;
  for (int i = 0; i < 20; ++i) {
    EXPECT_EQ(name_of(plant.run(seconds(55))), "nobody");
    plant.now += minutes(1);
  }
}

TEST(Stragglers, SlownessIsTheLeastOfAllMeasures) {
  const net::StepTotals other{
      .us = 1000, .steps = 10, .tokens = 100, .rows_read = 0, .outputs = 10};
  EXPECT_DOUBLE_EQ(slowness_between({.us = 6000, .steps = 10, .tokens = 300, .outputs = 20}, other),
                   2);
  EXPECT_DOUBLE_EQ(
      slowness_between({.us = 6000, .steps = 10, .tokens = 300, .rows_read = 1, .outputs = 20},
                       other),
      0)
      << "work of a kind that the other did not have";
  EXPECT_DOUBLE_EQ(slowness_between({}, other), 0);
  EXPECT_DOUBLE_EQ(slowness_between(other, {}), 0);
}

}  // namespace
}  // namespace pdjob::launcher
