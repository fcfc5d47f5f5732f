// Requests that kill workers are counted, isolated and refused. Each test is a story of several
// requests.
#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tests/unit/router/core/router_fixture.h"

namespace pdjob::router {
namespace {

using net::LossCause;
using Names = std::vector<std::string>;

// Workers have role `both`, so a request has one leg and a crash has one cause.
struct BlameTest : testing::Test {
  BlameTest() { config.hears_losses = true; }

  Router& router() {
    if (!made) {
      made = std::make_unique<Router>(config, 1);
    }
    return *made;
  }

  void step(const RouterEvent& event) {
    std::vector<RouterEffect> effects;
    router().step(event, now, effects);
    for (const RouterEffect& effect : effects) {
      if (const auto* start = std::get_if<StartLeg>(&effect)) {
        legs[start->leg.request.value] = start->leg;
        where[start->leg.request.value] = router().workers().find(start->worker)->entry.name;
      } else if (const auto* cancel = std::get_if<CancelLeg>(&effect)) {
        where.erase(cancel->leg.request.value);
      } else if (const auto* refuse = std::get_if<Refuse>(&effect)) {
        refused[refuse->id.value] = refuse->error;
      } else if (const auto* abort = std::get_if<Abort>(&effect)) {
        aborted.push_back(abort->id.value);
      } else if (const auto* blamed = std::get_if<Blamed>(&effect)) {
        blames.push_back(blamed->id.value);
      }
    }
  }

  void start_workers(const Names& names) {
    for (const std::string& name : names) {
      members[name] = name + ".1";
    }
    publish({});
  }
  void publish(const std::vector<net::Departure>& left) {
    std::vector<net::WorkerEntry> entries;
    for (const auto& [name, engine_id] : members) {
      entries.push_back(
          {.name = name, .engine_id = engine_id, .role = net::Role::kBoth, .host = "h", .port = 1});
    }
    step(WorkersChanged{entries, left});
  }
  void arrive(uint64_t id) { step(RequestArrived{RequestId{id}, {.model = ""}}); }
  void answer(uint64_t id) { step(LegAnswered{.leg = legs.at(id), .status = 200}); }
  void finish(uint64_t id) {
    if (!where.contains(id)) {
      return;
    }
    step(LegEnded{.leg = legs.at(id)});
    where.erase(id);
  }
  // The request's connection breaks.
  void break_leg(uint64_t id, bool reached = true) {
    where.erase(id);
    step(LegFailed{.leg = legs.at(id),
                   .error = {ErrorCode::kUnavailable, "broke off"},
                   .resumable = true,
                   .reached = reached});
  }
  // All legs on the worker break, and the cause is unknown so far.
  void break_worker(const std::string& name) {
    for (const auto& [id, there] : std::map(where)) {
      if (there == name && where.contains(id)) {
        break_leg(id);
      }
    }
  }
  void tell(const std::string& name, LossCause cause) {
    const net::Departure gone{.name = name, .engine_id = members.at(name), .cause = cause};
    members.erase(name);
    publish({gone});
  }
  void restart(const std::string& name) {
    members[name] = name + "." + std::to_string(++incarnations);
    publish({});
  }
  void lose(const std::string& name, LossCause cause) {
    break_worker(name);
    tell(name, cause);
  }
  void stand_still(const std::string& name, Duration still) {
    const auto whole = std::chrono::duration_cast<milliseconds>(still).count();
    step(LoadChanged{.name = name,
                     .engine_id = members.at(name),
                     .load = {.standstill_ms = static_cast<uint64_t>(whole)}});
  }
  void pass(Duration duration) {
    now += duration;
    step(TimePassed{});
  }
  std::string place_of(uint64_t id) const { return where.contains(id) ? where.at(id) : "waits"; }

  RouterConfig config;
  std::unique_ptr<Router> made;
  Instant now{std::chrono::hours(1)};
  std::map<std::string, std::string> members;
  int incarnations = 1;
  std::map<uint64_t, LegId> legs;
  std::map<uint64_t, std::string> where;  // The worker of each running leg.
  std::map<uint64_t, openai::ApiError> refused;
  std::vector<uint64_t> aborted;
  std::vector<uint64_t> blames;
};

TEST_F(BlameTest, ARequestThatKillsTwoWorkersIsRefusedAndNotGivenToAThird) {
  start_workers({"a", "b", "c"});
  arrive(1);
  lose(place_of(1), LossCause::kCrash);
  const std::string second = place_of(1);
  ASSERT_NE(second, "waits") << "after one loss it is tried again at once";
  break_worker(second);
  EXPECT_EQ(place_of(1), "waits") << "for the word on the second";
  tell(second, LossCause::kCrash);
  ASSERT_TRUE(refused.contains(1));
  EXPECT_EQ(refused.at(1).status, 422);
  EXPECT_EQ(refused.at(1).code, "request_kills_workers");
  EXPECT_EQ(refused.at(1).type, "invalid_request_error");
  EXPECT_EQ(blames, std::vector<uint64_t>{1});
  EXPECT_EQ(router().requests_alive(), 0U);
}

TEST_F(BlameTest, AHangCountsAsACrashAndIsToldBeforeTheConnectionBreaks) {
  start_workers({"a", "b", "c"});
  arrive(1);
  tell(place_of(1), LossCause::kHang);
  ASSERT_NE(place_of(1), "waits");
  tell(place_of(1), LossCause::kHang);
  EXPECT_EQ(refused.at(1).status, 422);
}

TEST_F(BlameTest, KillsFromOutsideNeverMakeARefusal) {
  config.attempts = 100;
  start_workers({"a", "b"});
  arrive(1);
  for (int i = 0; i < 20; ++i) {
    const std::string place = place_of(1);
    ASSERT_NE(place, "waits") << i;
    lose(place, LossCause::kOutside);
    restart(place);
  }
  answer(1);
  finish(1);
  EXPECT_TRUE(blames.empty());
  EXPECT_EQ(router().requests_alive(), 0U);
}

TEST_F(BlameTest, TheWordOnTheSecondLossIsNotWaitedForLong) {
  start_workers({"a", "b", "c"});
  arrive(1);
  break_worker(place_of(1));
  break_worker(place_of(1));
  EXPECT_EQ(place_of(1), "waits");
  pass(limits::kLossWordWait);
  EXPECT_NE(place_of(1), "waits") << "no word came";
  EXPECT_TRUE(blames.empty());
}

// A 503 says "try later": the client would send the killer again.
TEST_F(BlameTest, TheWordOnTheSecondLossIsAwaitedThoughNoAttemptIsLeft) {
  config.attempts = 2;
  start_workers({"a", "b", "c"});
  arrive(1);
  lose(place_of(1), LossCause::kCrash);
  const std::string second = place_of(1);
  break_worker(second);
  EXPECT_FALSE(refused.contains(1));
  EXPECT_EQ(place_of(1), "waits");
  tell(second, LossCause::kCrash);
  ASSERT_TRUE(refused.contains(1));
  EXPECT_EQ(refused.at(1).status, 422);
}

TEST_F(BlameTest, WhoAwaitsTheWordGetsNoAttemptBeyondTheLast) {
  config.attempts = 2;
  for (const bool told : {true, false}) {
    made.reset();
    refused.clear();
    members.clear();
    start_workers({"a", "b", "c"});
    arrive(1);
    lose(place_of(1), LossCause::kCrash);
    const std::string second = place_of(1);
    break_worker(second);
    ASSERT_EQ(place_of(1), "waits");
    if (told) {
      tell(second, LossCause::kOutside);
    } else {
      pass(limits::kLossWordWait);
    }
    ASSERT_TRUE(refused.contains(1)) << told;
    EXPECT_EQ(refused.at(1).status, 503) << told;
    EXPECT_EQ(router().requests_alive(), 0U);
  }
}

TEST_F(BlameTest, AWordThatComesLateIsOneOfSomethingElse) {
  config.attempts = 10;
  start_workers({"a", "b", "c"});
  arrive(1);
  const std::string first = place_of(1);
  break_worker(first);
  const std::string second = place_of(1);
  break_worker(second);
  pass(limits::kLossWordWait);
  ASSERT_NE(place_of(1), "waits");
  tell(first, LossCause::kCrash);
  tell(second, LossCause::kCrash);
  EXPECT_TRUE(blames.empty());
}

TEST_F(BlameTest, WithoutALauncherNobodyWaitsAndNobodyIsBlamed) {
  config.hears_losses = false;
  start_workers({"a", "b", "c"});
  arrive(1);
  break_worker(place_of(1));
  break_worker(place_of(1));
  EXPECT_NE(place_of(1), "waits");
  break_worker(place_of(1));
  EXPECT_EQ(refused.at(1).status, 503) << "three attempts are made";
  EXPECT_TRUE(blames.empty());
}

TEST_F(BlameTest, ARequestThatNeverReachedTheWorkerIsNotToBlame) {
  config.attempts = 10;
  start_workers({"a", "b", "c", "d"});
  arrive(1);
  for (int i = 0; i < 3; ++i) {
    const std::string refusing = place_of(1);
    break_leg(1, /*reached=*/false);
    tell(refusing, LossCause::kCrash);
  }
  EXPECT_NE(place_of(1), "waits");
  EXPECT_TRUE(blames.empty());
}

TEST_F(BlameTest, AStreamThatKillsTwoWorkersIsCut) {
  start_workers({"a", "b", "c"});
  arrive(1);
  answer(1);
  lose(place_of(1), LossCause::kCrash);
  ASSERT_NE(place_of(1), "waits");
  answer(1);
  lose(place_of(1), LossCause::kCrash);
  EXPECT_EQ(aborted, std::vector<uint64_t>{1});
  EXPECT_EQ(blames, std::vector<uint64_t>{1});
}

// One of eight requests kills every worker that runs it. The router does not know which one.
TEST_F(BlameTest, TheOthersOnAKilledWorkerAreServedAndTheKillerAloneIsRefused) {
  constexpr uint64_t kRequests = 8;
  for (uint64_t killer = 1; killer <= kRequests; ++killer) {
    made.reset();
    members.clear();
    where.clear();
    refused.clear();
    blames.clear();
    start_workers({"a"});
    for (uint64_t id = 1; id <= kRequests; ++id) {
      arrive(id);
      ASSERT_EQ(place_of(id), "a");
    }
    start_workers({"a", "b"});
    std::map<uint64_t, bool> done;
    for (int turn = 0; turn < 100 && router().requests_alive() > 0; ++turn) {
      if (where.contains(killer)) {
        const std::string killed = where.at(killer);
        lose(killed, LossCause::kCrash);
        restart(killed);
      }
      for (const auto& [id, place] : std::map(where)) {
        if (id != killer && where.contains(id)) {
          answer(id);
          finish(id);
          done[id] = true;
        }
      }
      pass(milliseconds(100));
    }
    EXPECT_EQ(blames, std::vector<uint64_t>{killer});
    EXPECT_EQ(done.size(), kRequests - 1) << killer;
    EXPECT_EQ(refused.size(), 1U) << killer;
  }
}

TEST_F(BlameTest, TwoSuspectsAreNotSentToOneWorker) {
  start_workers({"a"});
  for (uint64_t id = 1; id <= 3; ++id) {
    arrive(id);
  }
  start_workers({"a", "b", "c"});
  lose("a", LossCause::kCrash);
  EXPECT_EQ((Names{place_of(1), place_of(2), place_of(3)}), (Names{"b", "c", "waits"}));
  answer(1);
  // Request 1 has passed its trial, so another suspect may run beside it.
  pass(limits::kSuspectTrial);
  EXPECT_EQ(place_of(3), "b");
}

TEST_F(BlameTest, ASuspectDoesNotWaitForAWorkerOfItsOwnForEver) {
  start_workers({"a"});
  arrive(1);
  arrive(2);
  start_workers({"a", "b"});
  lose("a", LossCause::kCrash);
  EXPECT_EQ(place_of(1), "b");
  EXPECT_EQ(place_of(2), "waits");
  pass(limits::kSuspectWaitMax);
  EXPECT_EQ(place_of(2), "b");
}

// A launcher that is being restarted cannot report a dead worker, which looks free until then.
TEST_F(BlameTest, ASuspectDoesNotSpendItsAttemptsOnADeadWorkerWhileTheOthersAreBusy) {
  config.attempts = 3;
  start_workers({"a"});
  arrive(1);
  arrive(2);
  start_workers({"a", "b"});
  break_worker("a");
  ASSERT_EQ(place_of(1), "b");
  for (int refused_connections = 0; refused_connections < 3; ++refused_connections) {
    while (place_of(2) == "waits") {
      pass(WorkerTable::kBackoffFirst);
    }
    ASSERT_EQ(place_of(2), "a");
    break_leg(2, false);
    ASSERT_TRUE(refused.empty()) << refused_connections;
  }
  answer(1);
  finish(1);
  EXPECT_EQ(place_of(2), "b");
}

// Killing a process breaks many connections at once. The cause becomes known a moment later.
TEST_F(BlameTest, WhoeverWasLostFromOutsideIsNoSuspect) {
  start_workers({"a"});
  for (uint64_t id = 1; id <= 3; ++id) {
    arrive(id);
  }
  start_workers({"a", "b"});
  break_worker("a");
  EXPECT_EQ(place_of(3), "waits") << "it may have been any of them";
  tell("a", LossCause::kOutside);
  EXPECT_EQ((Names{place_of(1), place_of(2), place_of(3)}), (Names{"b", "b", "b"}));
}

TEST_F(BlameTest, WhoHasPassedItsTrialIsNotCountedTheLossOfTheNextSuspect) {
  start_workers({"a"});
  arrive(1);
  arrive(2);
  start_workers({"a", "b"});
  lose("a", LossCause::kCrash);
  ASSERT_EQ(place_of(1), "b");
  answer(1);
  pass(limits::kSuspectTrial);
  ASSERT_EQ(place_of(2), "b");
  restart("a");
  lose("b", LossCause::kCrash);
  EXPECT_EQ(blames, std::vector<uint64_t>{2});
  EXPECT_NE(place_of(1), "waits");
}

TEST_F(BlameTest, ButWhoHasPassedItsTrialAndKillsAllTheSameIsRefused) {
  start_workers({"a", "b", "c"});
  arrive(1);
  lose(place_of(1), LossCause::kCrash);
  answer(1);
  pass(limits::kSuspectTrial);
  lose(place_of(1), LossCause::kCrash);
  EXPECT_EQ(blames, std::vector<uint64_t>{1});
}

TEST_F(BlameTest, AWorkerThatStandsStillIsAvoided) {
  start_workers({"a", "b"});
  stand_still("a", limits::kStandstillAvoided);
  for (uint64_t id = 1; id <= 3; ++id) {
    arrive(id);
    EXPECT_EQ(place_of(id), "b");
  }
  stand_still("b", limits::kStandstillAvoided);
  arrive(4);
  EXPECT_NE(place_of(4), "waits") << "where nobody better is left, it is taken";
}

TEST_F(BlameTest, NoSuspectIsSentToAWorkerThatStandsStill) {
  start_workers({"a", "b"});
  stand_still("b", limits::kStandstillAvoided);
  arrive(1);
  ASSERT_EQ(place_of(1), "a");
  lose("a", LossCause::kCrash);
  EXPECT_EQ(place_of(1), "waits");
  stand_still("b", milliseconds(0));
  EXPECT_EQ(place_of(1), "b");
}

// --- without a launcher: health checks

TEST_F(BlameTest, AWorkerThatDoesNotAnswerHealthChecksGetsNothingNewAndKeepsWhatItHas) {
  config.hears_losses = false;
  start_workers({"a"});
  arrive(1);
  step(WorkerProbed{.name = "a", .reachable = false, .silent = true});
  EXPECT_EQ(place_of(1), "a") << "it may compute a long prompt";
  EXPECT_FALSE(router().usable());
  arrive(2);
  EXPECT_EQ(place_of(2), "waits");
  step(WorkerProbed{.name = "a", .reachable = true});
  EXPECT_EQ(place_of(2), "a");
  step(WorkerProbed{.name = "a", .reachable = false, .silent = true});
  arrive(3);
  EXPECT_EQ(place_of(3), "waits");
  answer(1);
  EXPECT_EQ(place_of(3), "a") << "whoever answers is there";
}

// Three prefill workers and three decode workers. Prefills are known well enough to be hedged.
struct HedgedBlameTest : RouterTest {
  HedgedBlameTest() {
    config.hears_losses = true;
    config.hedge_quantile = 0.95;
    for (const std::string name : {"0", "1", "2"}) {
      for (const auto& [prefix, role] :
           {std::pair("p", net::Role::kPrefill), std::pair("d", net::Role::kDecode)}) {
        there.push_back(entry(prefix + name, role));
        there.back().engine_id = there.back().name;
      }
    }
    workers(there);
    for (int request = 0; request < 50; ++request) {
      arrive({.prompt_tokens = 100});
      now += milliseconds(10);
      answered(Stage::kDecode, 200);
      ended(Stage::kPrefill);
      ended(Stage::kDecode);
    }
    starts.clear();
  }
  Words report(uint32_t attempt, LossCause cause) {
    const auto started = std::ranges::find(starts, leg(Stage::kPrefill, attempt), &StartLeg::leg);
    const std::string name = router().workers().find(started->worker)->entry.name;
    std::erase_if(there, [&](const net::WorkerEntry& one) { return one.name == name; });
    return step(WorkersChanged{there, {{.name = name, .engine_id = name, .cause = cause}}});
  }
  std::vector<net::WorkerEntry> there;
};

// The decode worker may learn first that a prefill worker has died. Then the rival goes on alone.
TEST_F(HedgedBlameTest, ALossThatTheDecodeWorkerToldFirstCountsThoughARivalGoesOn) {
  arrive({.prompt_tokens = 100});
  EXPECT_EQ(sleep(router().next_wakeup() - now).front(), "hedge");
  answered(Stage::kDecode, 502, 1);
  report(1, LossCause::kCrash);
  failed(Stage::kPrefill, 2);
  report(2, LossCause::kOutside);
  failed(Stage::kPrefill, 3);
  EXPECT_EQ(std::ranges::count(report(3, LossCause::kCrash), "refuse 422"), 1);
}

// A prefill worker that lives is no loss.
TEST_F(HedgedBlameTest, AFailedHandOverOfAWorkerThatLivesIsNotCounted) {
  arrive({.prompt_tokens = 100});
  sleep(router().next_wakeup() - now);
  answered(Stage::kDecode, 502, 1);
  sleep(limits::kLossWordWait);
  report(1, LossCause::kCrash);
  failed(Stage::kPrefill, 2);
  report(2, LossCause::kOutside);
  failed(Stage::kPrefill, 3);
  EXPECT_EQ(std::ranges::count(report(3, LossCause::kCrash), "refuse 422"), 0);
}

}  // namespace
}  // namespace pdjob::router
