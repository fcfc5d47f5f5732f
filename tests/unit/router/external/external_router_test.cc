#include "router/external/external_router.h"

#include <algorithm>
#include <functional>

#include <gtest/gtest.h>

#include "common/random.h"

namespace pdjob::router {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

net::WorkerEntry worker(net::Role role, uint16_t port) {
  return {.name = std::string(net::to_string(role)) + "-" + std::to_string(port),
          .role = role,
          .host = "127.0.0.1",
          .port = port,
          .model = "m"};
}
const net::WorkerEntry kPrefill1 = worker(net::Role::kPrefill, 1);
const net::WorkerEntry kPrefill2 = worker(net::Role::kPrefill, 2);
const net::WorkerEntry kDecode1 = worker(net::Role::kDecode, 11);
const net::WorkerEntry kDecode2 = worker(net::Role::kDecode, 12);

std::string name_of(const net::WorkerEntry& entry) {
  return "http://127.0.0.1:" + std::to_string(entry.port);
}
std::set<std::string> names_of(const std::vector<net::WorkerEntry>& workers) {
  std::set<std::string> names;
  for (const net::WorkerEntry& each : workers) {
    names.insert(name_of(each));
  }
  return names;
}

RouterRecipe recipe(MembershipBy membership, bool reads_back = false) {
  RouterRecipe made{.name = "other", .command = {"other"}, .ready_path = "/ready"};
  made.membership = membership;
  made.members_path = reads_back ? "/workers" : "";
  return made;
}

// Feeds events to the core, and keeps its effects.
class Story {
 public:
  explicit Story(RouterRecipe told) : recipe_(std::move(told)), core_(recipe_, false) {}

  void happens(const ExternalEvent& event) { core_.step(event, now_, effects_); }
  void members(std::vector<net::WorkerEntry> workers) {
    happens(MembersChanged{++version_, std::move(workers)});
  }
  // Only time passes.
  void passes(Duration time) {
    const Instant end = now_ + time;
    for (Instant due = core_.next_wakeup(); due <= end; due = core_.next_wakeup()) {
      now_ = std::max(now_, due);
      happens(TimePassed{});
    }
    now_ = end;
  }
  // Returns and removes all kept effects of a kind.
  template <class Effect>
  std::vector<Effect> take() {
    std::vector<Effect> taken;
    for (const ExternalEffect& effect : effects_) {
      if (const auto* one = std::get_if<Effect>(&effect)) {
        taken.push_back(*one);
      }
    }
    std::erase_if(effects_, [](const ExternalEffect& effect) {
      return std::holds_alternative<Effect>(effect);
    });
    return taken;
  }
  // Starts the only instance, makes it ready and returns it.
  InstanceId started_and_ready() {
    passes(ExternalRouter::kSettle);
    const auto starts = take<StartInstance>();
    EXPECT_EQ(starts.size(), 1U);
    passes(ExternalRouter::kCheckInterval);
    happens(ReadyChecked{starts.front().instance, true});
    if (!recipe_.members_path.empty()) {
      happens(MembersRead{starts.front().instance, names_of(starts.front().workers)});
    }
    passes(milliseconds(1));
    return starts.front().instance;
  }
  uint64_t version() const { return version_; }
  Instant now() const { return now_; }
  ExternalRouter& core() { return core_; }

 private:
  const RouterRecipe recipe_;
  ExternalRouter core_;
  Instant now_{seconds(1000)};
  uint64_t version_ = 0;
  std::vector<ExternalEffect> effects_;
};

TEST(ExternalRouter, StartsOnceBothRolesAreThere) {
  Story story(recipe(MembershipBy::kRestart));
  story.members({kPrefill1});
  story.passes(seconds(10));
  EXPECT_TRUE(story.take<StartInstance>().empty());
  story.members({kPrefill1, kDecode1});
  story.passes(ExternalRouter::kSettle);
  EXPECT_EQ(story.take<StartInstance>().size(), 1U);
}

TEST(ExternalRouter, ConnectionsGoToAnInstanceOnceItIsReady) {
  Story story(recipe(MembershipBy::kRestart));
  story.members({kPrefill1, kDecode1});
  story.passes(ExternalRouter::kSettle);
  const InstanceId instance = story.take<StartInstance>().front().instance;
  story.passes(ExternalRouter::kCheckInterval);
  EXPECT_EQ(story.take<CheckReady>().size(), 1U);
  story.happens(ReadyChecked{instance, false});
  story.passes(ExternalRouter::kCheckInterval);
  EXPECT_EQ(story.take<CheckReady>().size(), 1U);
  EXPECT_TRUE(story.take<PassTo>().empty());
  EXPECT_TRUE(story.take<MembersApplied>().empty());
  story.happens(ReadyChecked{instance, true});
  EXPECT_EQ(story.take<PassTo>().front().instance, instance);
  story.passes(milliseconds(1));
  EXPECT_EQ(story.take<MembersApplied>().front().version, 1U);
}

TEST(ExternalRouter, WhatIsReadBackMustNameEveryWorkerBeforeConnectionsGoThere) {
  Story story(recipe(MembershipBy::kRestart, true));
  story.members({kPrefill1, kDecode1});
  story.passes(ExternalRouter::kSettle);
  const InstanceId instance = story.take<StartInstance>().front().instance;
  story.passes(ExternalRouter::kCheckInterval);
  story.happens(ReadyChecked{instance, true});
  EXPECT_EQ(story.take<ReadMembers>().size(), 1U);
  story.happens(MembersRead{instance, names_of({kPrefill1})});
  EXPECT_TRUE(story.take<PassTo>().empty());
  story.passes(ExternalRouter::kCheckInterval);
  story.happens(MembersRead{instance, names_of({kPrefill1, kDecode1})});
  EXPECT_EQ(story.take<PassTo>().size(), 1U);
}

TEST(ExternalRouter, ByRestartANewInstanceTakesThePlaceOfTheOldWhichDrains) {
  Story story(recipe(MembershipBy::kRestart));
  story.members({kPrefill1, kDecode1});
  const InstanceId old = story.started_and_ready();
  story.take<PassTo>();
  story.take<MembersApplied>();
  story.members({kPrefill1, kPrefill2, kDecode1});
  EXPECT_TRUE(story.take<EndInstance>().empty());  // It serves until the other one is ready.
  const InstanceId next = story.started_and_ready();
  EXPECT_EQ(story.take<PassTo>().front().instance, next);
  const auto ends = story.take<EndInstance>();
  ASSERT_EQ(ends.size(), 1U);
  EXPECT_EQ(ends.front().instance, old);
  EXPECT_FALSE(ends.front().at_once);
  EXPECT_EQ(story.take<MembersApplied>().front().version, 2U);
  story.passes(seconds(31));
  EXPECT_TRUE(story.take<EndInstance>().front().at_once);  // It did not end in time.
}

TEST(ExternalRouter, AnInstanceThatStartsWithAnOldListIsReplacedAtOnce) {
  Story story(recipe(MembershipBy::kRestart));
  story.members({kPrefill1, kDecode1});
  story.passes(ExternalRouter::kSettle);
  const InstanceId first = story.take<StartInstance>().front().instance;
  story.members({kPrefill1, kDecode1, kDecode2});
  story.passes(ExternalRouter::kSettle);
  EXPECT_EQ(story.take<EndInstance>().front().instance, first);
  EXPECT_EQ(story.take<StartInstance>().front().workers.size(), 3U);
}

TEST(ExternalRouter, ChangesThatComeTogetherAreOneStart) {
  Story story(recipe(MembershipBy::kRestart));
  story.members({kPrefill1, kDecode1});
  story.passes(milliseconds(150));
  story.members({kPrefill1, kPrefill2, kDecode1});
  story.passes(milliseconds(150));
  story.members({kPrefill1, kPrefill2, kDecode1, kDecode2});
  story.passes(milliseconds(250));
  const auto starts = story.take<StartInstance>();
  ASSERT_EQ(starts.size(), 1U);
  EXPECT_EQ(starts.front().workers.size(), 4U);
}

TEST(ExternalRouter, AWorkerOfANewIncarnationAtTheSameAddressIsNoChange) {
  Story story(recipe(MembershipBy::kRestart));
  story.members({kPrefill1, kDecode1});
  story.started_and_ready();
  story.take<MembersApplied>();
  net::WorkerEntry reborn = kPrefill1;
  reborn.engine_id = "another";
  story.members({reborn, kDecode1});
  story.passes(seconds(5));
  EXPECT_TRUE(story.take<StartInstance>().empty());
  EXPECT_EQ(story.take<MembersApplied>().front().version, 2U);
}

TEST(ExternalRouter, ByHttpWorkersAreAddedAndRemovedUntilTheyAreReadBackSo) {
  Story story(recipe(MembershipBy::kHttp, true));
  story.members({kPrefill1, kDecode1});
  const InstanceId instance = story.started_and_ready();
  story.happens(MembersRead{instance, names_of({kPrefill1, kDecode1})});
  EXPECT_EQ(story.take<MembersApplied>().front().version, 1U);
  story.take<ReadMembers>();
  story.members({kPrefill2, kDecode1});
  EXPECT_EQ(story.take<ReadMembers>().size(), 1U);
  story.happens(MembersRead{instance, names_of({kPrefill1, kDecode1})});
  const auto told = story.take<TellOf>();
  ASSERT_EQ(told.size(), 2U);
  EXPECT_EQ(told[0].name, name_of(kPrefill2));
  EXPECT_TRUE(told[0].added);
  EXPECT_EQ(told[1].name, name_of(kPrefill1));
  EXPECT_FALSE(told[1].added);
  story.passes(ExternalRouter::kCheckInterval);
  story.happens(MembersRead{instance, names_of({kPrefill1, kPrefill2, kDecode1})});
  EXPECT_TRUE(story.take<TellOf>().empty());  // The instance has just been told.
  EXPECT_TRUE(story.take<MembersApplied>().empty());
  story.passes(ExternalRouter::kCheckInterval);
  story.happens(MembersRead{instance, names_of({kPrefill2, kDecode1})});
  EXPECT_EQ(story.take<MembersApplied>().front().version, 2U);
  EXPECT_TRUE(story.take<StartInstance>().empty());
}

TEST(ExternalRouter, WhatIsNotTakenInByHttpIsMetByANewInstance) {
  Story story(recipe(MembershipBy::kHttp, true));
  story.members({kPrefill1, kDecode1});
  const InstanceId instance = story.started_and_ready();
  story.happens(MembersRead{instance, names_of({kPrefill1, kDecode1})});
  story.members({kPrefill1, kPrefill2, kDecode1});
  const Instant end = story.now() + ExternalRouter::kTellTimeout;
  while (story.now() < end) {
    story.happens(MembersRead{instance, names_of({kPrefill1, kDecode1})});
    story.passes(ExternalRouter::kCheckInterval);
  }
  EXPECT_EQ(story.take<TellOf>().size(), 5U);  // One every two seconds.
  EXPECT_EQ(story.take<StartInstance>().front().workers.size(), 3U);
}

TEST(ExternalRouter, AWorkerThatARouterLosesByItselfIsToldOfAgain) {
  Story story(recipe(MembershipBy::kHttp, true));
  story.members({kPrefill1, kDecode1});
  const InstanceId instance = story.started_and_ready();
  story.happens(MembersRead{instance, names_of({kPrefill1, kDecode1})});
  story.passes(ExternalRouter::kReviewInterval);
  story.happens(MembersRead{instance, names_of({kDecode1})});
  EXPECT_EQ(story.take<TellOf>().front().name, name_of(kPrefill1));
}

TEST(ExternalRouter, AnInstanceThatDiesIsStartedAgainWhileConnectionsWait) {
  Story story(recipe(MembershipBy::kRestart));
  story.members({kPrefill1, kDecode1});
  const InstanceId instance = story.started_and_ready();
  story.take<PassTo>();
  story.happens(InstanceExited{instance, "signal 9 (Killed)"});
  EXPECT_FALSE(story.take<PassTo>().front().instance);
  story.passes(ExternalRouter::kBackoffMin);
  EXPECT_EQ(story.take<StartInstance>().size(), 1U);
}

TEST(ExternalRouter, GivesUpOnAProgramThatNeverGetsReady) {
  Story story(recipe(MembershipBy::kRestart));
  story.members({kPrefill1, kDecode1});
  for (uint32_t death = 0; death < ExternalRouter::kDeathsMax; ++death) {
    EXPECT_TRUE(story.take<GiveUp>().empty());
    story.passes(seconds(5));
    story.happens(InstanceExited{story.take<StartInstance>().at(0).instance, "exit code 2"});
  }
  EXPECT_EQ(story.take<GiveUp>().front().reason, "it was not ready 5 times, last: exit code 2");
  story.passes(seconds(60));
  EXPECT_TRUE(story.take<StartInstance>().empty());
}

TEST(ExternalRouter, AnInstanceThatIsNotReadyInTimeIsKilledAndCountsAsDead) {
  Story story(recipe(MembershipBy::kRestart));
  story.members({kPrefill1, kDecode1});
  story.passes(ExternalRouter::kSettle);
  const InstanceId slow = story.take<StartInstance>().front().instance;
  story.passes(seconds(61));
  const auto ends = story.take<EndInstance>();
  ASSERT_EQ(ends.size(), 1U);
  EXPECT_EQ(ends.front().instance, slow);
  EXPECT_TRUE(ends.front().at_once);
  EXPECT_EQ(story.take<StartInstance>().size(), 1U);
}

TEST(ExternalRouter, HasDrainedWhenAllInstancesHaveEnded) {
  Story story(recipe(MembershipBy::kRestart));
  story.members({kPrefill1, kDecode1});
  const InstanceId instance = story.started_and_ready();
  story.happens(DrainAsked{});
  EXPECT_FALSE(story.take<EndInstance>().front().at_once);
  EXPECT_TRUE(story.take<ExternalDrained>().empty());
  story.happens(InstanceExited{instance, "exit code 0"});
  EXPECT_EQ(story.take<ExternalDrained>().size(), 1U);
}

TEST(ExternalRouter, HasDrainedAtOnceWhereNothingRuns) {
  Story story(recipe(MembershipBy::kRestart));
  story.happens(DrainAsked{});
  EXPECT_EQ(story.take<ExternalDrained>().size(), 1U);
}

// --- from seeds: a program that starts slowly, dies, does not answer, and applies changes late

class World {
 public:
  World(MembershipBy membership, bool reads_back, uint64_t seed)
      : recipe_(recipe(membership, reads_back)), core_(recipe_, false), random_(seed) {}

  void run() {
    for (int turn = 0; turn < 400; ++turn) {
      const bool calm = turn >= 300;
      if (!calm && random_.below(8) == 0) {
        change_members();
      }
      for (auto& [id, instance] : instances_) {
        if (!calm && instance.alive && random_.below(40) == 0) {
          die(id, "signal 11");
        }
      }
      answer(calm);
      const Instant next = std::min(core_.next_wakeup(), now_ + milliseconds(300));
      now_ = std::max(next, now_ + milliseconds(1));
      step(TimePassed{});
    }
    if (given_up_) {
      return;
    }
    // 100 turns have passed without a fault.
    ASSERT_TRUE(core_.serving() || !complete());
    if (complete()) {
      EXPECT_EQ(applied_, version_);
      EXPECT_EQ(instances_.at(*passed_to_).members, names_of(workers_));
    }
    step(DrainAsked{});
    for (auto& [id, instance] : instances_) {
      if (instance.alive) {
        die(id, "exit code 0");
      }
    }
    answer(true);
    EXPECT_TRUE(drained_);
  }

 private:
  struct Program {
    bool alive = true;
    bool ending = false;
    Instant ready_at{};
    std::set<std::string> members;
  };

  bool complete() const {
    const auto has = [this](net::Role role) {
      return std::ranges::any_of(workers_, [role](const auto& each) { return each.role == role; });
    };
    return has(net::Role::kPrefill) && has(net::Role::kDecode);
  }

  void change_members() {
    workers_.clear();
    for (const net::WorkerEntry& each : {kPrefill1, kPrefill2, kDecode1, kDecode2}) {
      if (random_.below(3) != 0) {
        workers_.push_back(each);
      }
    }
    step(MembersChanged{++version_, workers_});
  }

  void die(InstanceId id, const std::string& how) {
    instances_.at(id).alive = false;
    step(InstanceExited{id, how});
  }

  void answer(bool calm) {
    for (const ExternalEvent& event : std::exchange(answers_, {})) {
      const auto* ready = std::get_if<ReadyChecked>(&event);
      const auto* read = std::get_if<MembersRead>(&event);
      const bool lost = !calm && random_.below(4) == 0;
      if (lost && ready != nullptr) {
        step(ReadyChecked{ready->instance, false});
      } else if (lost && read != nullptr) {
        step(MembersRead{read->instance, std::nullopt});
      } else {
        step(event);
      }
    }
  }

  void step(const ExternalEvent& event) {
    std::vector<ExternalEffect> effects;
    core_.step(event, now_, effects);
    for (const ExternalEffect& effect : effects) {
      std::visit([this](const auto& body) { apply(body); }, effect);
    }
    const auto alive = std::ranges::count_if(
        instances_, [](const auto& entry) { return entry.second.alive && !entry.second.ending; });
    ASSERT_LE(alive, 2);
  }

  void apply(const StartInstance& effect) {
    ASSERT_FALSE(instances_.contains(effect.instance));
    ASSERT_FALSE(drained_);
    instances_[effect.instance] = {.ready_at = now_ + milliseconds(random_.below(1500)),
                                   .members = names_of(effect.workers)};
  }
  void apply(const EndInstance& effect) {
    Program& program = instances_.at(effect.instance);
    ASSERT_TRUE(program.alive);
    program.ending = true;
    if (effect.at_once || random_.below(2) == 0) {
      program.alive = false;
      answers_.push_back(InstanceExited{effect.instance, "ended"});
    }
  }
  void apply(const CheckReady& effect) {
    answers_.push_back(
        ReadyChecked{effect.instance, now_ >= instances_.at(effect.instance).ready_at});
  }
  void apply(const ReadMembers& effect) {
    answers_.push_back(MembersRead{effect.instance, instances_.at(effect.instance).members});
  }
  void apply(const TellOf& effect) {
    auto& members = instances_.at(effect.instance).members;
    if (random_.below(3) == 0) {
      return;  // The program did not understand it.
    }
    if (effect.added) {
      members.insert(effect.name);
    } else {
      members.erase(effect.name);
    }
  }
  void apply(const PassTo& effect) {
    passed_to_ = effect.instance;
    if (passed_to_) {
      ASSERT_GE(now_, instances_.at(*passed_to_).ready_at);
    }
  }
  void apply(const MembersApplied& effect) {
    ASSERT_EQ(effect.version, version_);
    ASSERT_GT(effect.version, std::exchange(applied_, effect.version));
    ASSERT_EQ(instances_.at(passed_to_.value()).members, names_of(workers_));
  }
  void apply(const ExternalDrained&) { drained_ = true; }
  void apply(const GiveUp&) { given_up_ = true; }

  const RouterRecipe recipe_;
  ExternalRouter core_;
  Random random_;
  Instant now_{seconds(1)};
  std::map<InstanceId, Program> instances_;
  std::vector<net::WorkerEntry> workers_;
  std::vector<ExternalEvent> answers_;
  std::optional<InstanceId> passed_to_;
  uint64_t version_ = 0;
  uint64_t applied_ = 0;
  bool drained_ = false;
  bool given_up_ = false;
};

TEST(ExternalRouterSimulation, SaysThatAVersionIsAppliedOnlyWhereTheServingInstanceHasIt) {
  for (uint64_t seed = 1; seed <= 100; ++seed) {
    for (const MembershipBy membership : {MembershipBy::kRestart, MembershipBy::kHttp}) {
      SCOPED_TRACE("seed " + std::to_string(seed) + ", membership " +
                   std::to_string(static_cast<int>(membership)));
      World(membership, membership == MembershipBy::kHttp || seed % 2 == 0, seed).run();
      if (testing::Test::HasFailure()) {
        return;
      }
    }
  }
}

}  // namespace
}  // namespace pdjob::router
