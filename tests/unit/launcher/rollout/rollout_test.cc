#include "launcher/rollout/rollout.h"

#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "common/random.h"

namespace pdjob::launcher {
namespace {

using net::OrderKind;
using net::PauseMode;
using std::chrono::milliseconds;
using std::chrono::minutes;
using std::chrono::seconds;

constexpr const char* kPath = "/w/step-1.gguf";

// A fleet of one router and two pairs, and the core. Tests answer as its processes.
struct RolloutTest : testing::Test {
  RolloutTest() {
    fleet = {.ready = true,
             .routers = {{"router-0", "r0.1"}},
             .workers = {
                 worker("prefill-0", net::Role::kPrefill), worker("prefill-1", net::Role::kPrefill),
                 worker("decode-0", net::Role::kDecode), worker("decode-1", net::Role::kDecode)}};
    see();
    applies();
    effects.clear();
  }

  static WorkerSeen worker(const std::string& name, net::Role role) {
    return {.name = name,
            .engine_id = name + ".1",
            .role = role,
            .state = ProcessState::kReady,
            .version = "default",
            .digest = "d0",
            .last_exit = {}};
  }
  WorkerSeen& at(const std::string& name) {
    return *std::ranges::find(fleet.workers, name, &WorkerSeen::name);
  }

  void tell(const RolloutEvent& event) { core.step(event, now, effects); }
  void see() { tell(fleet); }
  void pass(Duration duration) {
    now += duration;
    if (now >= core.next_wakeup()) {
      tell(TimePassed{});
    }
  }
  uint64_t order(net::OrderAsked asked) {
    asked.id = ++ids;
    tell(OrderReceived{{"router-0", asked.id}, asked});
    return asked.id;
  }
  uint64_t update(const std::string& version = "step-1", const std::string& path = kPath) {
    return order({.kind = OrderKind::kUpdate, .path = path, .version = version});
  }
  uint64_t pause(PauseMode mode = PauseMode::kAbort) {
    return order({.kind = OrderKind::kPause, .mode = mode});
  }
  uint64_t resume() { return order({.kind = OrderKind::kResume}); }

  template <class M>
  std::vector<M> told(const std::string& peer) const {
    std::vector<M> found;
    for (const RolloutEffect& effect : effects) {
      const auto* tell = std::get_if<TellProcess>(&effect);
      if (tell != nullptr && tell->peer == peer && std::holds_alternative<M>(tell->message)) {
        found.push_back(std::get<M>(tell->message));
      }
    }
    return found;
  }
  template <class E>
  const E* last() const {
    const E* found = nullptr;
    for (const RolloutEffect& effect : effects) {
      if (const E* one = std::get_if<E>(&effect)) {
        found = one;
      }
    }
    return found;
  }
  // The status of the order's answer; 0: there is none yet.
  int status_of(uint64_t id) const {
    for (const RolloutEffect& effect : effects) {
      const auto* answer = std::get_if<AnswerOrder>(&effect);
      if (answer != nullptr && answer->to.id == id) {
        return answer->answer.status;
      }
    }
    return 0;
  }

  void prepared(const std::string& name, const std::string& error = "",
                const std::string& digest = "d1") {
    tell(WorkerPrepared{name,
                        {.engine_id = at(name).engine_id,
                         .order = told<net::PrepareWeights>(name).back().order,
                         .path = kPath,
                         .digest = digest,
                         .error = error}});
  }
  // An update to step-1 that no worker survives. The weights before are those of step-0.
  void stick() {
    update("step-0", "/w/step-0.gguf");
    all_prepared("d9");
    applies();
    for (const char* name : {"prefill-0", "prefill-1", "decode-0", "decode-1"}) {
      serves(name, "step-0");
    }
    applies();
    const uint64_t id = update();
    all_prepared();
    applies();
    pass(minutes(6));
    EXPECT_EQ(status_of(id), 500);
    EXPECT_STREQ(core.phase(), "applying");
    EXPECT_EQ(core.weights().version, "step-0");
    effects.clear();
  }
  void all_prepared(const std::string& digest = "d1") {
    for (const char* name : {"prefill-0", "prefill-1", "decode-0", "decode-1"}) {
      prepared(name, "", digest);
    }
  }
  // The router has applied what it was told last.
  void applies(uint64_t running = 0) {
    tell(RouterAnswered{
        "router-0",
        {.engine_id = fleet.routers.front().engine_id, .epoch = core.epoch(), .running = running}});
  }
  // The worker serves as another engine with these weights.
  void serves(const std::string& name, const std::string& version = "step-1",
              const std::string& digest = "d1") {
    at(name).engine_id += 'x';
    at(name).state = ProcessState::kReady;
    at(name).version = version;
    at(name).digest = digest;
    see();
  }
  // A whole update.
  void complete(const std::string& version, const std::string& digest) {
    const uint64_t id = update(version, "/w/" + version + ".gguf");
    all_prepared(digest);
    applies();
    for (const char* name : {"prefill-0", "prefill-1", "decode-0", "decode-1"}) {
      serves(name, version, digest);
    }
    EXPECT_EQ(status_of(id), 200);
    EXPECT_EQ(core.weights().version, version);
  }
  void all_leave() {
    for (WorkerSeen& worker : fleet.workers) {
      worker.state = ProcessState::kDraining;
    }
    see();
  }

  Rollout core{
      {.prepare_timeout = minutes(1), .quiesce_timeout = minutes(2), .apply_timeout = minutes(3)},
      {.path = {}, .version = "default", .digest = {}},
      {},
      1};
  FleetSeen fleet;
  Instant now{seconds(1000)};
  std::vector<RolloutEffect> effects;
  uint64_t ids = 0;
};

TEST_F(RolloutTest, AnUpdatePreparesThenClosesThenAppliesThenReopens) {
  const uint64_t id = update();
  EXPECT_EQ(told<net::PrepareWeights>("decode-1").size(), 1U);
  EXPECT_TRUE(told<net::AdmissionAsked>("router-0").empty()) << "requests run while workers read";
  all_prepared();
  ASSERT_EQ(told<net::AdmissionAsked>("router-0").size(), 1U);
  EXPECT_TRUE(told<net::AdmissionAsked>("router-0").front().closed);
  applies(3);
  EXPECT_EQ(last<ApplyWeights>(), nullptr) << "requests still run";
  applies(0);
  ASSERT_NE(last<ApplyWeights>(), nullptr);
  EXPECT_EQ(last<ApplyWeights>()->weights, (net::WeightSource{kPath, "step-1", "d1"}));
  EXPECT_EQ(last<ApplyWeights>()->prepared.size(), 4U);
  all_leave();
  for (const char* name : {"prefill-0", "prefill-1", "decode-0"}) {
    serves(name);
  }
  EXPECT_EQ(status_of(id), 0) << "one is missing";
  EXPECT_EQ(core.weights().version, "default") << "published only when all serve";
  serves("decode-1");
  EXPECT_EQ(status_of(id), 200);
  EXPECT_EQ(core.weights().version, "step-1");
  EXPECT_FALSE(core.closed());
  EXPECT_FALSE(told<net::AdmissionAsked>("router-0").back().closed);
  EXPECT_EQ(core.report().updates, 1U);
}

TEST_F(RolloutTest, AWorkerThatRefusesTheWeightsEndsTheOrderAndNothingChanges) {
  const uint64_t id = update();
  prepared("prefill-0");
  tell(WorkerPrepared{"decode-0",
                      {.engine_id = "decode-0.1",
                       .order = told<net::PrepareWeights>("decode-0").back().order,
                       .error = "layers is 2, must be 30",
                       .refused = true}});
  EXPECT_EQ(status_of(id), 400);
  EXPECT_NE(last<AnswerOrder>()->answer.message.find("decode-0: layers"), std::string::npos);
  EXPECT_EQ(last<ApplyWeights>(), nullptr);
  EXPECT_FALSE(core.closed());
  EXPECT_TRUE(told<net::PrepareWeights>("prefill-0").back().path.empty()) << "dropped";
}

TEST_F(RolloutTest, WorkersThatReadDifferentBytesEndTheOrder) {
  const uint64_t id = update();
  for (const char* name : {"prefill-0", "prefill-1", "decode-0"}) {
    prepared(name);
  }
  prepared("decode-1", "", "d2");
  EXPECT_EQ(status_of(id), 500);
  EXPECT_EQ(last<ApplyWeights>(), nullptr);
}

TEST_F(RolloutTest, AWorkerThatDiesWhileItReadsIsNotWaitedFor) {
  update();
  for (const char* name : {"prefill-0", "prefill-1", "decode-0"}) {
    prepared(name);
  }
  at("decode-1").state = ProcessState::kBackoff;
  see();
  applies();
  ASSERT_NE(last<ApplyWeights>(), nullptr);
  EXPECT_EQ(last<ApplyWeights>()->prepared.size(), 3U) << "it starts with the new weights";
}

TEST_F(RolloutTest, AWorkerThatJoinsWhileOthersReadIsAsked) {
  update();
  all_prepared();
  effects.clear();
  fleet.workers.push_back(worker("decode-2", net::Role::kDecode));
  fleet.workers.back().state = ProcessState::kStarting;
  see();
  EXPECT_TRUE(told<net::PrepareWeights>("decode-2").empty()) << "it reads nothing before it serves";
}

TEST_F(RolloutTest, AWorkerThatDoesNotComeBackIsNamedAndNotWaitedForIfItsRoleHasAnother) {
  const uint64_t id = update();
  all_prepared();
  applies();
  all_leave();
  for (const char* name : {"prefill-0", "prefill-1", "decode-0"}) {
    serves(name);
  }
  at("decode-1").state = ProcessState::kBackoff;
  see();
  EXPECT_EQ(status_of(id), 0);
  pass(seconds(11));
  EXPECT_EQ(status_of(id), 200);
  EXPECT_FALSE(core.closed());
  ASSERT_EQ(last<AnswerOrder>()->answer.troubles.size(), 1U);
  EXPECT_EQ(last<AnswerOrder>()->answer.troubles.front().worker, "decode-1");
}

TEST_F(RolloutTest, AWorkerThatWasAwayBeforeDelaysNoUpdate) {
  at("decode-1").state = ProcessState::kBackoff;
  see();
  const uint64_t id = update();
  for (const char* name : {"prefill-0", "prefill-1", "decode-0"}) {
    prepared(name);
  }
  applies();
  for (const char* name : {"prefill-0", "prefill-1", "decode-0"}) {
    EXPECT_EQ(status_of(id), 0);
    serves(name);
  }
  EXPECT_EQ(status_of(id), 200);
}

TEST_F(RolloutTest, TheFleetStaysClosedWhileARoleHasNoWorkerWithTheNewWeights) {
  const uint64_t id = update();
  all_prepared();
  applies();
  all_leave();
  serves("prefill-0");
  serves("prefill-1");
  at("decode-0").state = at("decode-1").state = ProcessState::kBackoff;
  see();
  pass(minutes(3));
  EXPECT_EQ(status_of(id), 500);
  EXPECT_TRUE(core.closed());
  serves("decode-0");
  pass(seconds(11));
  EXPECT_FALSE(core.closed()) << "it heals without another order";
  EXPECT_EQ(core.weights().version, "step-1");
}

TEST_F(RolloutTest, RequestsThatDoNotEndLeaveTheOldWeights) {
  const uint64_t id = update();
  all_prepared();
  applies(1);
  pass(minutes(2));
  EXPECT_EQ(status_of(id), 504);
  EXPECT_EQ(last<ApplyWeights>(), nullptr);
  EXPECT_FALSE(core.closed());
  EXPECT_EQ(core.weights().version, "default");
}

TEST_F(RolloutTest, WorkersThatDoNotAnswerLeaveTheOldWeights) {
  const uint64_t id = update();
  prepared("prefill-0");
  pass(minutes(1));
  EXPECT_EQ(status_of(id), 500);
  EXPECT_FALSE(core.closed());
}

TEST_F(RolloutTest, APauseIsAnsweredOnceNoRequestRuns) {
  const uint64_t id = pause();
  EXPECT_EQ(told<net::AdmissionAsked>("router-0").back().mode, PauseMode::kAbort);
  applies(2);
  EXPECT_EQ(status_of(id), 0);
  applies(0);
  EXPECT_EQ(status_of(id), 200);
  EXPECT_TRUE(core.report().paused);
  EXPECT_EQ(status_of(resume()), 200);
  EXPECT_FALSE(core.report().paused);
  EXPECT_FALSE(told<net::AdmissionAsked>("router-0").back().closed);
}

TEST_F(RolloutTest, AnUpdateOfAPausedFleetLeavesItPaused) {
  pause();
  applies();
  const uint64_t id = update();
  all_prepared();
  ASSERT_NE(last<ApplyWeights>(), nullptr) << "it is quiet already";
  all_leave();
  for (const char* name : {"prefill-0", "prefill-1", "decode-0", "decode-1"}) {
    serves(name);
  }
  EXPECT_EQ(status_of(id), 200);
  EXPECT_TRUE(core.closed());
  resume();
  EXPECT_FALSE(core.closed());
}

TEST_F(RolloutTest, ARepeatedOrderIsCarriedOutOnce) {
  const uint64_t id = update();
  tell(OrderReceived{{"router-0", id},
                     {.id = id, .kind = OrderKind::kUpdate, .path = kPath, .version = "step-1"}});
  EXPECT_EQ(told<net::PrepareWeights>("decode-0").size(), 1U);
  const uint64_t same = update();  // Another client, or one that gave up on the first.
  all_prepared();
  applies();
  all_leave();
  for (const char* name : {"prefill-0", "prefill-1", "decode-0", "decode-1"}) {
    serves(name);
  }
  EXPECT_EQ(status_of(id), 200);
  EXPECT_EQ(status_of(same), 200);
  effects.clear();
  tell(OrderReceived{{"router-0", id}, {.id = id, .kind = OrderKind::kUpdate}});
  EXPECT_EQ(status_of(id), 200) << "the answer was lost";
  EXPECT_EQ(status_of(update()), 200) << "these weights are in use";
  EXPECT_EQ(last<ApplyWeights>(), nullptr);
}

TEST_F(RolloutTest, AnotherOrderIsRefusedWhileOneRuns) {
  update();
  EXPECT_EQ(status_of(pause()), 409);
  EXPECT_EQ(status_of(update("step-2", "/w/step-2.gguf")), 409);
}

TEST_F(RolloutTest, AVersionThatNamesOtherWeightsIsRefused) {
  EXPECT_EQ(status_of(update("default")), 400);
  EXPECT_EQ(status_of(update("step-1", "")), 400);
  EXPECT_EQ(status_of(order({.kind = OrderKind::kRename})), 400);
}

TEST_F(RolloutTest, AVersionOfTheFleetsPastNamesNoOtherWeights) {
  complete("step-1", "d1");
  complete("step-2", "d2");
  const uint64_t other = update("step-1", "/w/other.gguf");
  all_prepared("d3");
  EXPECT_EQ(status_of(other), 400);
  EXPECT_EQ(core.weights().version, "step-2");
  EXPECT_FALSE(core.closed());
  EXPECT_EQ(status_of(order({.kind = OrderKind::kRename, .version = "step-1"})), 400);
  complete("step-1", "d1");  // The same weights may come back under their name.
}

TEST_F(RolloutTest, AWeightsVersionIsRememberedByTheNextLauncher) {
  complete("step-1", "d1");
  complete("step-2", "d2");
  const std::vector<NamedWeights> versions = core.record().versions;
  ASSERT_EQ(versions.size(), 3U);  // With "default".
  EXPECT_EQ(versions[1], (NamedWeights{"step-1", "d1"}));
}

TEST_F(RolloutTest, OnlySoManyVersionsAreRemembered) {
  for (size_t i = 0; i < kVersionsKept + 5; ++i) {
    complete("step-" + std::to_string(i), "d" + std::to_string(i));
  }
  EXPECT_EQ(core.record().versions.size(), kVersionsKept);
  EXPECT_EQ(core.record().versions.front().first, "step-5");
}

TEST_F(RolloutTest, WeightsWithoutANameGetAFreeOne) {
  complete("update-2", "d1");
  const uint64_t unnamed = update("");
  all_prepared("d2");
  applies();
  for (const char* name : {"prefill-0", "prefill-1", "decode-0", "decode-1"}) {
    serves(name, "update-3", "d2");
  }
  EXPECT_EQ(status_of(unnamed), 200);
  EXPECT_EQ(core.weights().version, "update-3");
}

TEST_F(RolloutTest, AnOrderThatHasChangedNothingYetCanBeCancelled) {
  const auto cancel = [this] { return order({.kind = OrderKind::kCancel}); };
  EXPECT_EQ(status_of(cancel()), 200) << "no order runs";
  const uint64_t reads = update();
  EXPECT_EQ(status_of(cancel()), 200);
  EXPECT_EQ(status_of(reads), 409);
  EXPECT_TRUE(told<net::PrepareWeights>("prefill-0").back().path.empty()) << "dropped";
  const uint64_t closes = update();
  all_prepared();
  applies(3);
  ASSERT_STREQ(core.phase(), "closing");
  EXPECT_EQ(status_of(cancel()), 200);
  EXPECT_EQ(status_of(closes), 409);
  EXPECT_FALSE(core.closed());
  const uint64_t applied = update();
  all_prepared();
  applies();
  ASSERT_STREQ(core.phase(), "applying");
  EXPECT_EQ(status_of(cancel()), 409);
  for (const char* name : {"prefill-0", "prefill-1", "decode-0", "decode-1"}) {
    serves(name);
  }
  EXPECT_EQ(status_of(applied), 200);
}

TEST_F(RolloutTest, AClosingPauseThatIsCancelledOpens) {
  const uint64_t waits = pause(PauseMode::kWait);
  applies(2);
  EXPECT_EQ(status_of(order({.kind = OrderKind::kCancel})), 200);
  EXPECT_EQ(status_of(waits), 409);
  EXPECT_FALSE(core.closed());
}

TEST_F(RolloutTest, TheSameBytesWithoutAVersionChangeNothing) {
  const uint64_t id = update("");
  for (const char* name : {"prefill-0", "prefill-1", "decode-0", "decode-1"}) {
    prepared(name, "", "d0");
  }
  EXPECT_EQ(status_of(id), 200);
  EXPECT_EQ(last<ApplyWeights>(), nullptr);
}

TEST_F(RolloutTest, ANewNameKeepsTheEngines) {
  const uint64_t id = order({.kind = OrderKind::kRename, .version = "step-9"});
  applies();
  ASSERT_NE(last<ApplyWeights>(), nullptr);
  EXPECT_EQ(last<ApplyWeights>()->prepared.at("decode-0.1"), 0U);
  EXPECT_EQ(last<ApplyWeights>()->weights, (net::WeightSource{"", "step-9", "d0"}));
  for (const char* name : {"prefill-0", "prefill-1", "decode-0", "decode-1"}) {
    serves(name, "step-9");
  }
  EXPECT_EQ(status_of(id), 200);
  EXPECT_EQ(core.report().updates, 0U);
}

TEST_F(RolloutTest, AFlushDoesNotWaitForRequests) {
  const uint64_t id = order({.kind = OrderKind::kFlush});
  applies(1);
  pass(seconds(2));
  EXPECT_EQ(status_of(id), 400);
  EXPECT_FALSE(core.closed());
  const uint64_t again = order({.kind = OrderKind::kFlush});
  applies(0);
  EXPECT_EQ(status_of(again), 0) << "the engines that have the rows are still there";
  for (const char* name : {"prefill-0", "prefill-1", "decode-0", "decode-1"}) {
    serves(name, "default");
  }
  EXPECT_EQ(status_of(again), 200);
}

TEST_F(RolloutTest, ARouterThatStartsIsToldTheAdmissionBeforeTheFleetIsQuiet) {
  pause();
  fleet.routers = {{"router-0", "r0.2"}};
  see();
  applies();
  EXPECT_TRUE(core.report().paused);
  EXPECT_TRUE(told<net::AdmissionAsked>("router-0").back().closed);
}

TEST_F(RolloutTest, LostMessagesAreRepeated) {
  update();
  pass(milliseconds(500));
  EXPECT_EQ(told<net::PrepareWeights>("decode-0").size(), 2U);
  all_prepared();
  pass(milliseconds(500));
  EXPECT_EQ(told<net::AdmissionAsked>("router-0").size(), 2U);
}

TEST_F(RolloutTest, AnOrderBackToTheWeightsBeforeAStuckUpdateIsCarriedOut) {
  stick();
  const uint64_t back = update("step-0", "/w/step-0.gguf");
  all_prepared("d9");
  applies();
  ASSERT_NE(last<ApplyWeights>(), nullptr);
  EXPECT_EQ(last<ApplyWeights>()->weights.version, "step-0");
  EXPECT_EQ(status_of(back), 0);
  for (const char* name : {"prefill-0", "prefill-1", "decode-0", "decode-1"}) {
    serves(name, "step-0");
  }
  EXPECT_EQ(status_of(back), 200);
  EXPECT_EQ(core.weights().version, "step-0");
}

TEST_F(RolloutTest, AnOrderThatFailedIsNotAnsweredWithTheSuccessOfTheOneBefore) {
  stick();
  const uint64_t other = update("step-2", "/w/step-2.gguf");
  prepared("prefill-0", "a bad file");
  EXPECT_EQ(status_of(other), 500);
  const uint64_t again = update("step-2", "/w/step-2.gguf");
  prepared("prefill-0", "a bad file");
  EXPECT_EQ(status_of(again), 500);
  for (const char* name : {"prefill-0", "prefill-1", "decode-0", "decode-1"}) {
    serves(name, "step-1");
  }
  EXPECT_EQ(core.weights().version, "step-1");
  EXPECT_FALSE(core.closed());
}

TEST_F(RolloutTest, AnotherLauncherGoesOnWithAnUpdateThatWasBeingApplied) {
  update();
  all_prepared();
  applies();
  const RolloutRecord record = core.record();
  EXPECT_TRUE(record.applying);
  Rollout next({}, {.path = kPath, .version = "step-1", .digest = "d1"}, record, 2);
  const auto tell_next = [&](const RolloutEvent& event) {
    effects.clear();
    next.step(event, now, effects);
  };
  tell_next(fleet);
  EXPECT_TRUE(next.closed());
  EXPECT_TRUE(told<net::AdmissionAsked>("router-0").back().closed);
  for (WorkerSeen& worker : fleet.workers) {
    worker.engine_id += 'x';
    worker.version = "step-1";
    worker.state = ProcessState::kReady;
  }
  tell_next(fleet);
  EXPECT_FALSE(next.closed());
  EXPECT_FALSE(next.record().applying);
  tell_next(
      OrderReceived{{"router-0", 99},
                    {.id = 99, .kind = OrderKind::kUpdate, .path = kPath, .version = "step-1"}});
  EXPECT_EQ(status_of(99), 200) << "a repeated order";
}

TEST_F(RolloutTest, WeightsThatKillTheirReadersAreGivenUpAndKillEachOnce) {
  const uint64_t id = update();
  for (const char* name : {"prefill-0", "prefill-1", "decode-0", "decode-1"}) {
    EXPECT_EQ(told<net::PrepareWeights>(name).size(), 1U);
    at(name).engine_id += 'x';
  }
  see();
  pass(milliseconds(500));
  EXPECT_EQ(status_of(id), 500);
  EXPECT_EQ(told<net::PrepareWeights>("prefill-0").size(), 2U) << "the second one ends the order";
  EXPECT_FALSE(core.closed());
}

TEST_F(RolloutTest, APauseThatIsWaitedForCanBecomeAnotherOneOrEnd) {
  const uint64_t waits = pause(PauseMode::kWait);
  applies(3);
  const uint64_t aborts = pause(PauseMode::kAbort);
  EXPECT_EQ(told<net::AdmissionAsked>("router-0").back().mode, PauseMode::kAbort);
  applies();
  EXPECT_EQ(status_of(waits), 200);
  EXPECT_EQ(status_of(aborts), 200);
  resume();
  applies();
  const uint64_t third = pause(PauseMode::kWait);
  applies(3);
  EXPECT_EQ(status_of(resume()), 200);
  EXPECT_EQ(status_of(third), 409);
  EXPECT_FALSE(core.closed());
}

TEST_F(RolloutTest, AFlushOfABusyFleetIsRefusedAtOnce) {
  const uint64_t id = order({.kind = OrderKind::kFlush});
  applies(2);
  EXPECT_EQ(status_of(id), 400);
  EXPECT_FALSE(core.closed());
}

TEST_F(RolloutTest, ARepeatedUpdateThatIsToKeepThePausePauses) {
  update();
  all_prepared();
  applies();
  for (const char* name : {"prefill-0", "prefill-1", "decode-0", "decode-1"}) {
    serves(name, "step-1");
  }
  applies();
  const uint64_t id =
      order({.kind = OrderKind::kUpdate, .path = kPath, .version = "step-1", .keeps_pause = true});
  applies();
  EXPECT_EQ(status_of(id), 200);
  EXPECT_TRUE(core.record().paused);
}

// Random stories: whatever is lost and whoever dies, the fleet never opens with two versions, each
// order is answered, and a fleet that heals opens again.
TEST_F(RolloutTest, InRandomStoriesTheFleetNeverOpensWithMixedWeights) {
  for (uint64_t seed = 0; seed < 300; ++seed) {
    Random random(seed);
    const RolloutTiming timing{.prepare_timeout = seconds(20),
                               .quiesce_timeout = seconds(20),
                               .apply_timeout = seconds(20)};
    net::WeightSource chosen{.path = {}, .version = "default", .digest = "d0"};
    uint64_t launcher = 1;
    std::optional<Rollout> core_of_story(std::in_place, timing, chosen, RolloutRecord{}, launcher);
    Rollout& one = *core_of_story;
    FleetSeen all = fleet;
    std::map<uint64_t, net::OrderAsked> open_orders;
    uint64_t id = 0;
    uint64_t engines = 1;
    bool router_closed = false;
    uint64_t router_epoch = 0;
    uint64_t running = 0;
    std::vector<RolloutEffect> out;
    std::vector<RolloutEvent> inbox;
    const auto maybe = [&](uint64_t percent) { return random.next() % 100 < percent; };
    const auto step = [&](const RolloutEvent& event) {
      out.clear();
      one.step(event, now, out);
      for (RolloutEffect& effect : out) {
        if (auto* apply = std::get_if<ApplyWeights>(&effect)) {
          ASSERT_TRUE(router_closed && running == 0) << "seed " << seed;
          chosen = apply->weights;
          for (WorkerSeen& worker : all.workers) {  // As the Job core does.
            worker.state = apply->prepared.contains(worker.engine_id) && maybe(80)
                               ? ProcessState::kDraining
                               : ProcessState::kStarting;
          }
          inbox.emplace_back(all);
        } else if (auto* answer = std::get_if<AnswerOrder>(&effect)) {
          const auto asked = open_orders.find(answer->to.id);
          ASSERT_TRUE(asked != open_orders.end()) << "seed " << seed << ": answered twice";
          if (answer->answer.status == 200 && !asked->second.version.empty()) {
            ASSERT_EQ(one.weights().version, asked->second.version)
                << "seed " << seed << ": " << answer->answer.message;
            ASSERT_EQ(one.weights().version, chosen.version) << "seed " << seed;
          }
          open_orders.erase(asked);
        } else if (auto* tell = std::get_if<TellProcess>(&effect); tell != nullptr && maybe(80)) {
          if (const auto* asked = std::get_if<net::AdmissionAsked>(&tell->message);
              asked != nullptr && asked->epoch >= router_epoch) {
            router_epoch = asked->epoch;
            router_closed = asked->closed;
            inbox.emplace_back(RouterAnswered{
                "router-0", {.engine_id = "r0.1", .epoch = router_epoch, .running = running}});
          } else if (const auto* order = std::get_if<net::PrepareWeights>(&tell->message);
                     order != nullptr && !order->path.empty()) {
            const auto worker = std::ranges::find(all.workers, tell->peer, &WorkerSeen::name);
            inbox.emplace_back(WorkerPrepared{tell->peer,
                                              {.engine_id = worker->engine_id,
                                               .order = order->order,
                                               .path = order->path,
                                               .digest = "of " + order->path,
                                               .error = maybe(3) ? "full" : ""}});
          }
        }
      }
    };
    step(all);
    for (int turn = 0; turn < 400; ++turn) {
      const bool calm = turn > 250;  // Nothing breaks any more.
      now += milliseconds(100 + random.next() % 400);
      if (!inbox.empty() && (calm || maybe(90))) {
        const RolloutEvent event = inbox.front();
        inbox.erase(inbox.begin());
        step(event);
      }
      if (turn < 200 && maybe(8)) {
        net::OrderAsked order{.id = ++id,
                              .kind = static_cast<OrderKind>(2 + random.next() % 5),
                              .mode = static_cast<PauseMode>(1 + random.next() % 3)};
        if (order.kind == OrderKind::kUpdate || order.kind == OrderKind::kRename) {
          order.version = "v" + std::to_string(random.next() % 6);
          order.path = order.kind == OrderKind::kUpdate ? "/w/" + order.version : "";
        }
        open_orders.emplace(id, order);
        step(OrderReceived{{"router-0", id}, order});
      }
      if (!calm && maybe(2)) {  // The launcher dies, and another one goes on with the record.
        const RolloutRecord record = one.record();
        core_of_story.emplace(timing, chosen, record, ++launcher);
        open_orders.clear();
        inbox.clear();
        step(all);
      }
      if (!calm && maybe(5)) {
        WorkerSeen& dies = all.workers[random.next() % all.workers.size()];
        dies.state = ProcessState::kBackoff;
        dies.last_exit = "signal 9 (Killed)";
        step(all);
      }
      running = router_closed ? (running > 0 && maybe(50) ? running - 1
                                 : calm                   ? 0
                                                          : running)
                              : random.next() % 3;
      if (router_closed && maybe(30)) {
        step(RouterAnswered{"router-0",
                            {.engine_id = "r0.1", .epoch = router_epoch, .running = running}});
      }
      for (WorkerSeen& worker : all.workers) {
        if (worker.state != ProcessState::kReady && maybe(calm ? 60 : 15)) {
          worker.engine_id = worker.name + "." + std::to_string(++engines);
          worker.state = ProcessState::kReady;
          worker.version = chosen.version;  // The Job core lets no other one register.
          worker.digest = chosen.digest;
          step(all);
        }
      }
      if (now >= one.next_wakeup()) {
        step(TimePassed{});
      }
      if (!router_closed) {
        for (const WorkerSeen& worker : all.workers) {
          ASSERT_TRUE(worker.state != ProcessState::kReady || worker.version == chosen.version);
        }
      }
      if (!one.closed()) {
        ASSERT_EQ(one.weights().version, chosen.version) << "seed " << seed << " turn " << turn;
      }
    }
    EXPECT_TRUE(open_orders.empty()) << "seed " << seed;
    EXPECT_STREQ(one.phase(), "idle") << "seed " << seed;
    EXPECT_EQ(one.weights().version, chosen.version) << "seed " << seed;
    EXPECT_EQ(one.closed(), one.record().paused) << "seed " << seed;
  }
}

}  // namespace
}  // namespace pdjob::launcher
