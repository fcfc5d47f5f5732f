#include "launcher/job/probing.h"

#include <algorithm>
#include <functional>
#include <set>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "common/random.h"

namespace pdjob::launcher {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using Names = std::vector<std::string>;

constexpr Duration kRetry = milliseconds(100);
constexpr Duration kPatience = seconds(60);

// Processes that register, and answer probes as told.
class World {
 public:
  explicit World(bool foreign_router = false)
      : probing(kRetry, kPatience, foreign_router,
                [this](const std::string& router, const std::string&) {
                  ++asked;
                  return !deaf.contains(router);
                }) {}

  void join(const std::string& name, net::Role role, const std::string& model = "m",
            const std::string& fingerprint = "") {
    Process process;
    process.name = name;
    process.role = role;
    process.model = role == net::Role::kRouter ? "" : model;
    process.state = ProcessState::kRegistered;
    process.entry.fingerprint = fingerprint;
    process.incarnation = {++incarnations};
    processes[name] = process;
    probing.update(process);
    if (deaf.empty()) {
      probing.routers_learnt();
    }
  }
  void leave(const std::string& name) {
    processes[name].state = ProcessState::kBackoff;
    probing.update(processes[name]);
  }
  std::vector<Probe> send() {
    std::vector<Probe> probes;
    while (auto probe = probing.next(now)) {
      probes.push_back(*probe);
    }
    return probes;
  }
  void succeed(const Probe& probe) {
    for (const std::string& name : probing.succeeded({probe.probe, 1}, now)) {
      processes[name].state = ProcessState::kReady;
      probing.update(processes[name]);
    }
  }
  void fail(const Probe& probe) {
    for (const std::string& name : probing.failed({probe.probe, "status 503"}, now)) {
      given_up.insert(name);
    }
  }
  // Answers all probes until nothing is left to send at this time.
  void answer(const std::function<bool(const Probe&)>& good) {
    for (std::vector<Probe> probes = send(); !probes.empty(); probes = send()) {
      for (const Probe& probe : probes) {
        good(probe) ? succeed(probe) : fail(probe);
      }
    }
  }
  bool ready(const std::string& name) const {
    return processes.at(name).state == ProcessState::kReady;
  }

  Instant now{seconds(1000)};
  uint64_t incarnations = 0;
  uint64_t asked = 0;          // Whether a router knows a process.
  std::set<std::string> deaf;  // Routers that have confirmed nothing.
  std::map<std::string, Process> processes;
  std::set<std::string> given_up;
  Probing probing;
};

void join_pairs(World& world, int pairs) {
  world.join("router-0", net::Role::kRouter);
  for (int i = 0; i < pairs; ++i) {
    world.join("prefill-" + std::to_string(i), net::Role::kPrefill);
    world.join("decode-" + std::to_string(i), net::Role::kDecode);
  }
}

TEST(Probing, SeveralProbesRunAtATime) {
  World world;
  join_pairs(world, 3);
  EXPECT_GE(world.send().size(), 3U);
  EXPECT_TRUE(world.send().empty()) << "the same ones are not sent again";
}

TEST(Probing, ProbesInFlightAreBounded) {
  World world;
  join_pairs(world, 200);
  EXPECT_LE(world.send().size(), Probing::kAtOnceMax);
}

TEST(Probing, ABadWorkerKeepsNobodyFromBeingProved) {
  for (const std::string bad : {"prefill-0", "decode-0", "prefill-1", "decode-1"}) {
    World world;
    join_pairs(world, 2);
    const auto good = [&](const Probe& probe) {
      return probe.prefill != bad && probe.decode != bad;
    };
    world.answer(good);
    world.now += kRetry;
    world.answer(good);
    for (const auto& [name, process] : world.processes) {
      EXPECT_EQ(world.ready(name), name != bad) << name << ", bad: " << bad;
    }
  }
}

// With one bad worker on each side, no fixed pairing proves the others.
TEST(Probing, PartnersChangeWhileNobodyIsProved) {
  World world;
  join_pairs(world, 4);
  const std::set<std::string> bad = {"prefill-0", "decode-1", "prefill-1", "prefill-2", "decode-0"};
  for (int round = 0; round < 12; ++round) {
    world.answer([&](const Probe& probe) {
      return !bad.contains(probe.prefill) && !bad.contains(probe.decode);
    });
    world.now += seconds(2);
  }
  for (const auto& [name, process] : world.processes) {
    EXPECT_EQ(world.ready(name), !bad.contains(name)) << name;
  }
}

// A probe of a hung worker takes 30 s to fail.
TEST(Probing, NobodyWaitsForTheProbeOfAHungWorker) {
  World world;
  join_pairs(world, 2);
  const auto hangs = [](const Probe& probe) { return probe.prefill == "prefill-0"; };
  for (std::vector<Probe> probes = world.send(); !probes.empty(); probes = world.send()) {
    for (const Probe& probe : probes) {
      hangs(probe) ? void() : world.succeed(probe);
    }
  }
  EXPECT_TRUE(world.ready("decode-0") && world.ready("decode-1") && world.ready("prefill-1"));
  EXPECT_FALSE(world.ready("prefill-0"));
}

TEST(Probing, ABadRouterKeepsNoWorkerFromBeingProved) {
  World world;
  world.join("router-0", net::Role::kRouter);
  world.join("router-1", net::Role::kRouter);
  world.join("decode-0", net::Role::kBoth);
  for (int round = 0; round < 3; ++round) {
    world.answer([](const Probe& probe) { return probe.router != "router-0"; });
    world.now += seconds(2);
  }
  EXPECT_TRUE(world.ready("decode-0") && world.ready("router-1"));
  EXPECT_FALSE(world.ready("router-0"));
}

TEST(Probing, AWorkerThatFailsWithProvedPartnersForLongIsGivenUp) {
  World world;
  join_pairs(world, 2);
  const auto good = [](const Probe& probe) { return probe.decode != "decode-0"; };
  world.answer(good);
  const Instant end = world.now + kPatience;
  for (; world.now < end; world.now += seconds(2)) {
    world.answer(good);
    EXPECT_TRUE(world.given_up.empty());
  }
  world.now += seconds(2);
  world.answer(good);
  EXPECT_EQ(world.given_up, std::set<std::string>{"decode-0"});
}

// As engines do that remember the ports of a dead peer.
TEST(Probing, AWorkerThatFailsWithOneProvedPartnerIsTriedWithTheOthers) {
  World world;
  join_pairs(world, 2);
  world.answer([](const Probe&) { return true; });
  world.leave("prefill-0");
  world.join("prefill-0", net::Role::kPrefill);
  for (int i = 0; i < 20 && !world.ready("prefill-0"); ++i) {
    world.now += seconds(2);
    world.answer([](const Probe& probe) {
      return probe.prefill != "prefill-0" || probe.decode != "decode-0";
    });
  }
  EXPECT_TRUE(world.ready("prefill-0"));
  EXPECT_TRUE(world.given_up.empty());
}

TEST(Probing, ANewRouterIsProvedThoughOnlyOneOfThePairsOfProvedWorkersIsWell) {
  for (const auto& [prefill, decode] :
       {std::pair(0, 0), std::pair(0, 1), std::pair(1, 0), std::pair(1, 1)}) {
    World world;
    join_pairs(world, 2);
    world.answer([](const Probe&) { return true; });
    world.leave("router-0");
    world.join("router-0", net::Role::kRouter);
    const std::string well[] = {"prefill-" + std::to_string(prefill),
                                "decode-" + std::to_string(decode)};
    for (int i = 0; i < 8 && !world.ready("router-0"); ++i) {
      world.answer(
          [&](const Probe& probe) { return probe.prefill == well[0] && probe.decode == well[1]; });
      world.now += seconds(20);
    }
    EXPECT_TRUE(world.ready("router-0")) << well[0] << " " << well[1];
    EXPECT_TRUE(world.given_up.empty());
  }
}

TEST(Probing, APartnerThatTwoNewWorkersWereGivenUpWithGoesWithTheSecond) {
  World world;
  join_pairs(world, 1);
  world.answer([](const Probe&) { return true; });
  const auto poisoned = [](const Probe& probe) { return probe.decode != "decode-0"; };
  const auto successor_fails = [&] {
    world.leave("prefill-0");
    world.join("prefill-0", net::Role::kPrefill);
    world.given_up.clear();
    for (int i = 0; i < 60 && world.given_up.empty(); ++i) {
      world.now += seconds(2);
      world.answer(poisoned);
    }
    return world.given_up;
  };
  EXPECT_EQ(successor_fails(), std::set<std::string>{"prefill-0"});
  EXPECT_EQ(successor_fails(), (std::set<std::string>{"decode-0", "prefill-0"}));
}

TEST(Probing, APartnerThroughWhichAProbeHasPassedSinceIsNotToBlame) {
  World world;
  join_pairs(world, 1);
  world.answer([](const Probe&) { return true; });
  for (int round = 0; round < 3; ++round) {
    world.leave("prefill-0");
    world.join("prefill-0", net::Role::kPrefill);
    world.given_up.clear();
    for (int i = 0; i < 60 && world.given_up.empty(); ++i) {
      world.now += seconds(2);
      world.answer([](const Probe&) { return false; });
    }
    EXPECT_EQ(world.given_up, std::set<std::string>{"prefill-0"}) << round;
    world.leave("prefill-0");
    world.join("prefill-1", net::Role::kPrefill);
    world.answer([](const Probe&) { return true; });
    world.leave("prefill-1");
  }
}

TEST(Probing, NobodyIsBlamedWhileItsPartnersAreNotProved) {
  World world;
  join_pairs(world, 1);
  const Instant end = world.now + 3 * kPatience;
  for (; world.now < end; world.now += seconds(2)) {
    world.answer([](const Probe&) { return false; });
  }
  EXPECT_TRUE(world.given_up.empty());
}

TEST(Probing, ARetryIsDueAfterAFailureAndTheWaitDoubles) {
  World world;
  join_pairs(world, 1);
  Duration last = kRetry / 2;
  for (int i = 0; i < 6; ++i) {
    world.answer([](const Probe&) { return false; });
    const Duration wait = world.probing.due() - world.now;
    EXPECT_EQ(wait, std::min<Duration>(2 * last, kRetry * (1 << Probing::kDoublingsMax)));
    last = wait;
    world.now += wait;
  }
}

TEST(Probing, AllRetriesThatAreDueAreSentAtOnce) {
  World world;
  join_pairs(world, 1);
  world.answer([](const Probe&) { return true; });
  world.join("decode-1", net::Role::kDecode);
  world.join("decode-2", net::Role::kDecode);
  world.answer([](const Probe&) { return false; });
  world.now = world.probing.due();
  EXPECT_EQ(world.send().size(), 2U);
}

TEST(Probing, TheWorkForAProcessDoesNotGrowWithTheFleet) {
  const auto asked_each = [](int pairs) {
    World world;
    join_pairs(world, pairs);
    world.answer([](const Probe&) { return true; });
    EXPECT_TRUE(world.ready("decode-" + std::to_string(pairs - 1)));
    return static_cast<double>(world.asked) / (2 * pairs);
  };
  EXPECT_LE(asked_each(1000), 2 * asked_each(100));
}

TEST(Probing, NewcomersThatNoRouterKnowsYetCostNothing) {
  World world;
  world.deaf.insert("router-0");
  world.join("router-0", net::Role::kRouter);
  for (int i = 0; i < 1000; ++i) {
    world.join("decode-" + std::to_string(i), net::Role::kDecode);
    EXPECT_TRUE(world.send().empty());
  }
  EXPECT_LE(world.asked, 1000U);
}

TEST(Probing, ARouterIsNotAskedForWorkersThatItDoesNotKnow) {
  World world;
  world.deaf.insert("router-0");
  join_pairs(world, 1);
  EXPECT_TRUE(world.send().empty());
  EXPECT_EQ(world.probing.due(), kNever);
  world.deaf.clear();
  world.probing.routers_learnt();
  EXPECT_EQ(world.send().size(), 1U);
}

TEST(Probing, AForeignRouterIsProbedAloneAfterAPairWasProbedDirectly) {
  World world(/*foreign_router=*/true);
  join_pairs(world, 1);
  const std::vector<Probe> direct = world.send();
  ASSERT_EQ(direct.size(), 1U);
  EXPECT_EQ(direct[0].router, "");
  EXPECT_EQ(direct[0].prefill, "prefill-0");
  world.succeed(direct[0]);
  const std::vector<Probe> through = world.send();
  ASSERT_EQ(through.size(), 1U);
  EXPECT_EQ(through[0].router, "router-0");
  EXPECT_EQ(through[0].decode, "");
  EXPECT_FALSE(world.ready("router-0"));
  world.succeed(through[0]);
  EXPECT_TRUE(world.ready("router-0"));
}

TEST(Probing, TheAnswerOfAProbeCountsForItsIncarnationsOnly) {
  World world;
  join_pairs(world, 1);
  const Probe old = world.send().front();
  world.leave("decode-0");
  world.join("decode-0", net::Role::kDecode);
  world.succeed(old);
  EXPECT_TRUE(world.ready("prefill-0"));
  EXPECT_FALSE(world.ready("decode-0"));
  world.answer([](const Probe&) { return true; });
  EXPECT_TRUE(world.ready("decode-0"));
}

TEST(Probing, OnlyWorkersWhoseKvMeansTheSameAreProbedTogether) {
  World world;
  join_pairs(world, 2);
  world.answer([](const Probe&) { return true; });
  world.join("prefill-2", net::Role::kPrefill, "m", "new");
  EXPECT_TRUE(world.send().empty()) << "nobody could fetch its KV";
  world.join("decode-2", net::Role::kDecode, "m", "new");
  const std::vector<Probe> probes = world.send();
  ASSERT_EQ(probes.size(), 1U);
  EXPECT_EQ(probes.front().prefill, "prefill-2");
  EXPECT_EQ(probes.front().decode, "decode-2");
  world.succeed(probes.front());
  EXPECT_TRUE(world.ready("prefill-2") && world.ready("decode-2"));
}

TEST(Probing, ARouterIsProvedByAPairThatThereIs) {
  World world;
  join_pairs(world, 1);
  world.answer([](const Probe&) { return true; });
  world.join("decode-1", net::Role::kDecode, "m", "new");
  world.leave("decode-0");
  world.join("decode-0", net::Role::kDecode);
  world.answer([](const Probe&) { return true; });
  world.join("router-1", net::Role::kRouter);
  world.answer([](const Probe&) { return true; });
  EXPECT_TRUE(world.ready("router-1"));
  EXPECT_FALSE(world.ready("decode-1"));
}

// Found by simulation, seed 192.
TEST(Probing, AProcessThatWasSilentDuringItsProbeIsProbedAgain) {
  World world;
  join_pairs(world, 1);
  const Probe old = world.send().front();
  world.leave("decode-0");
  world.processes["decode-0"].state = ProcessState::kRegistered;  // The same incarnation.
  world.probing.update(world.processes["decode-0"]);
  world.fail(old);
  world.now += kRetry;
  world.answer([](const Probe&) { return true; });
  EXPECT_TRUE(world.ready("decode-0"));
}

// Whatever comes and goes: good workers with a good partner are proved, bad ones never.
TEST(Probing, RandomlyBadProcessesNeverKeepGoodOnesFromBeingProved) {
  for (uint64_t seed = 1; seed <= 200; ++seed) {
    Random random(seed);
    World world;
    const int workers = 1 + static_cast<int>(random.below(6));
    join_pairs(world, workers);
    world.join("router-1", net::Role::kRouter);
    std::set<std::string> bad;
    for (const auto& [name, process] : world.processes) {
      if (random.chance(0.4)) {
        bad.insert(name);
      }
    }
    std::vector<Probe> slow;
    for (int round = 0; round < 120; ++round) {
      const auto good = [&](const Probe& probe) {
        return !bad.contains(probe.router) && !bad.contains(probe.prefill) &&
               !bad.contains(probe.decode);
      };
      for (const Probe& probe : world.send()) {
        if (good(probe)) {
          world.succeed(probe);
        } else if (random.chance(0.3)) {
          slow.push_back(probe);  // Those of the last rounds never end.
        } else {
          world.fail(probe);
        }
      }
      if (round % 15 == 14 && round < 100) {  // Time-outs.
        for (const Probe& probe : slow) {
          world.fail(probe);
        }
        slow.clear();
        const std::string restarted = "decode-" + std::to_string(random.below(workers));
        world.leave(restarted);
        world.join(restarted, net::Role::kDecode);
      }
      world.now += seconds(2);
    }
    const auto some_good = [&](const std::string& kind) {
      return std::ranges::any_of(world.processes, [&](const auto& row) {
        return row.first.starts_with(kind) && !bad.contains(row.first);
      });
    };
    const bool provable = some_good("router") && some_good("prefill") && some_good("decode");
    for (const auto& [name, process] : world.processes) {
      EXPECT_EQ(world.ready(name), provable && !bad.contains(name)) << name << ", seed " << seed;
    }
  }
}

}  // namespace
}  // namespace pdjob::launcher
