#include "router/core/router.h"

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tests/unit/router/core/router_fixture.h"

namespace pdjob::router {
namespace {

// --- the retry budget

TEST_F(RouterTest, BadAnswersArePassedOnWhenTheRetryBudgetIsSpent) {
  config.retry_budget = 0.5;
  workers(two_pairs);
  const auto overloaded_once = [this] {
    arrive();
    const Words words = answered(Stage::kDecode, 503, 1, true);
    const bool retried = std::ranges::count(words, "retry overloaded") == 1;
    const uint32_t last = retried ? 2 : 1;
    if (retried) {
      answered(Stage::kDecode, 200, last);
      ended(Stage::kPrefill, last);
    } else {
      EXPECT_EQ(words,
                (Words{"out of retries", "cancel prefill#1", "release @p0", "relay decode#1"}));
    }
    ended(Stage::kDecode, last);
    expect_idle();
    return retried;
  };
  int retried = 0;
  for (int request = 0; request < 1000; ++request) {
    retried += overloaded_once() ? 1 : 0;
  }
  // The saved retries first, then every second request.
  EXPECT_NEAR(retried, RetryBudget::kSaved + 500, 1);
}

TEST_F(RouterTest, WhatWasLostWithAWorkerIsTriedAgainWithoutABudget) {
  config.retry_budget = 0;
  workers(two_pairs);
  for (int request = 0; request < 2 * RetryBudget::kSaved; ++request) {
    arrive();
    const Words words = failed(Stage::kDecode);
    EXPECT_EQ(std::ranges::count(words, "retry unreachable"), 1) << request;
    answered(Stage::kDecode, 200, 2);
    ended(Stage::kPrefill, 2);
    ended(Stage::kDecode, 2);
  }
}

// --- machines

struct NearTest : RouterTest {
  NearTest() {
    config.pairing = Pairing::kNear;
    for (net::WorkerEntry& each : on_two_machines) {
      each.host = each.name.back() == '0' ? "left" : "right";
    }
    workers(on_two_machines);
  }
  void waits_at_p1(uint64_t tokens) {
    step(LoadChanged{.name = "p1", .engine_id = "e1", .load = {.tokens_queued = tokens}});
  }
  std::vector<net::WorkerEntry> on_two_machines = {two_pairs[0], two_pairs[1], two_pairs[3]};
};

TEST_F(NearTest, APromptIsComputedOnTheMachineOfItsDecodeWorker) {
  waits_at_p1(100);
  EXPECT_EQ(arrive({.prompt_tokens = 100}), (Words{"prefill#1@p1 offer", "decode#1@d1 fetch"}));
}

TEST_F(NearTest, ButNotWhereItWouldWaitForMoreThanItself) {
  waits_at_p1(101);
  EXPECT_EQ(arrive({.prompt_tokens = 100}), (Words{"prefill#1@p0 offer", "decode#1@d1 fetch"}));
}

TEST_F(NearTest, NorWhereNobodyIsLeft) {
  workers({on_two_machines[0], on_two_machines[2]});
  EXPECT_EQ(arrive({.prompt_tokens = 100}), (Words{"prefill#1@p0 offer", "decode#1@d1 fetch"}));
}

TEST_F(NearTest, UnlessItIsAskedForMachinesDoNotCount) {
  config.pairing = Pairing::kAny;
  made = nullptr;
  workers(on_two_machines);
  waits_at_p1(1);
  EXPECT_EQ(arrive({.prompt_tokens = 100}), (Words{"prefill#1@p0 offer", "decode#1@d1 fetch"}));
}

// --- several models

struct ModelsTest : RouterTest {
  ModelsTest() {
    config.models = {"m", "n"};
    for (net::WorkerEntry& each : two_of_n) {
      each.model = "n";
    }
    both.insert(both.end(), two_of_n.begin(), two_of_n.end());
  }
  std::vector<net::WorkerEntry> two_of_n = {entry("n-p0", net::Role::kPrefill),
                                            entry("n-d0", net::Role::kDecode)};
  std::vector<net::WorkerEntry> both = pair;
};

TEST_F(ModelsTest, BothWorkersAreOfTheModelThatIsAskedFor) {
  workers(both);
  EXPECT_EQ(arrive({.model = "n"}), (Words{"prefill#1@n-p0 offer", "decode#1@n-d0 fetch"}));
  answered(Stage::kDecode, 200);
  ended(Stage::kPrefill);
  ended(Stage::kDecode);
  EXPECT_EQ(arrive({.model = "m"}), (Words{"prefill#1@p0 offer", "decode#1@d0 fetch"}));
}

TEST_F(ModelsTest, SoIsWhoTokenizes) {
  workers(both);
  EXPECT_EQ(arrive({.model = "n", .hands_over = false}), Words{"decode#1@n-d0"});
}

TEST_F(ModelsTest, SoAreBothHopsToForeignEngines) {
  for (net::WorkerEntry& each : both) {
    each.kv_address = "";
  }
  workers(both);
  EXPECT_EQ(arrive({.model = "n"}), Words{"prefill#1@n-p0 offer?"});
  EXPECT_EQ(ended(Stage::kPrefill, 1, true), Words{"decode#1@n-d0 fetch?"});
}

TEST_F(ModelsTest, ARetryStaysWithItsModel) {
  workers(both);
  arrive({.model = "n"});
  EXPECT_EQ(failed(Stage::kPrefill),
            (Words{"cancel decode#1", "retry unreachable", "degraded", "decode#2@n-d0"}));
}

TEST_F(ModelsTest, APrefillWorkerOfAnotherModelIsNone) {
  config.fallback = Fallback::kRefuse;
  workers({both[0], both[1], both[3]});
  EXPECT_EQ(arrive({.model = "n"}), Words{});
  EXPECT_EQ(workers(both), (Words{"prefill#1@n-p0 offer", "decode#1@n-d0 fetch"}));
}

TEST_F(ModelsTest, ADecodeWorkerOfAnyModelGetsAPrefillWorkerOfTheOneThatIsAskedFor) {
  config.models.clear();
  auto any = entry("any-d0", net::Role::kDecode);
  any.model = "";
  workers({pair[0], two_of_n[0], any});
  EXPECT_EQ(arrive({.model = "n"}), (Words{"prefill#1@n-p0 offer", "decode#1@any-d0 fetch"}));
}

// Its only worker may be restarting at the moment.
TEST_F(ModelsTest, AModelOfTheJobIsWaitedForAndAnyOtherIsUnknown) {
  EXPECT_EQ(arrive({.model = "other"}), Words{"refuse 404"});
  workers(pair);
  EXPECT_EQ(arrive({.model = "n"}), Words{});
  EXPECT_EQ(workers(both), (Words{"prefill#1@n-p0 offer", "decode#1@n-d0 fetch"}));
  EXPECT_EQ(router().models(), (std::set<std::string>{"m", "n"}));
}

TEST_F(ModelsTest, WhoNamesNoneOfSeveralIsAskedTo) {
  workers(both);
  EXPECT_EQ(arrive(), Words{"refuse 400"});
  EXPECT_EQ(refusal.error.param, "model");
}

TEST_F(ModelsTest, PinsAreOfOneModelAndOfTheOneThatIsAskedFor) {
  config.models.clear();
  workers(both);
  EXPECT_EQ(arrive({.model = "m", .pin_decode = "n-d0"}), Words{"refuse 503"});
  EXPECT_EQ(arrive({.pin_prefill = "p0", .pin_decode = "n-d0"}), Words{"refuse 503"});
  EXPECT_EQ(arrive({.pin_prefill = "n-p0"}),
            (Words{"prefill#1@n-p0 offer", "decode#1@n-d0 fetch"}));
}

TEST_F(ModelsTest, AStreamGoesOnWithItsModelAlsoIfItNamedNone) {
  config.models.clear();
  workers(both);
  EXPECT_EQ(arrive(), (Words{"prefill#1@p0 offer", "decode#1@d0 fetch"}));
  answered(Stage::kDecode, 200);
  ended(Stage::kPrefill);
  EXPECT_EQ(workers(two_of_n), Words{});
  EXPECT_EQ(step(LegFailed{leg(Stage::kDecode), {ErrorCode::kUnavailable, "x"}, true}),
            Words{"continued"});
  EXPECT_EQ(workers(both), (Words{"prefill#2@p0 offer", "decode#2@d0 fetch resume"}));
}

TEST_F(ModelsTest, HowSoonAPrefillIsSlowIsLearntForEach) {
  config.hedge_quantile = 0.95;
  auto more = two_pairs;
  for (net::WorkerEntry each : two_of_n) {
    more.push_back(each);
    each.name += 'b';
    more.push_back(each);
  }
  workers(more);
  const auto serve = [&](const char* model, Duration took) {
    arrive({.model = model, .prompt_tokens = 100});
    now += took;
    answered(Stage::kDecode, 200);
    ended(Stage::kPrefill);
    ended(Stage::kDecode);
  };
  for (int request = 0; request < 50; ++request) {
    serve("m", milliseconds(10));
    serve("n", seconds(1));
  }
  step(RequestArrived{RequestId{8}, {.model = "n", .prompt_tokens = 100}});
  arrive({.model = "m", .prompt_tokens = 100});
  EXPECT_EQ(sleep(milliseconds(500)), (Words{"hedge", "prefill#2@p1 offer", "decode#2@d1 fetch"}));
  EXPECT_EQ(sleep(seconds(2)).front(), "hedge");
}

TEST_F(ModelsTest, OneThatNobodyServesDoesNotFillTheQueueForTheOthers) {
  config.queue_max = 4;
  config.prefill_in_flight = 1;
  workers(pair);
  const auto arrive_as = [&](uint64_t id, const char* model) {
    return step(RequestArrived{RequestId{id}, {.model = model}});
  };
  arrive_as(1, "m");
  for (uint64_t id = 2; id <= 5; ++id) {
    EXPECT_EQ(arrive_as(id, "n"), Words{});
  }
  EXPECT_EQ(arrive_as(6, "m"), Words{"refuse 503"});
  EXPECT_EQ(refusal.id, RequestId{5});
  EXPECT_EQ(arrive_as(7, "n"), Words{"refuse 503"});
  EXPECT_EQ(refusal.id, RequestId{7});
  EXPECT_EQ(router().requests_queued(), 4U);
}

// --- what engines say of their caches

struct KvEventsTest : RouterTest {
  KvEventsTest() {
    config.prefill_policy = PolicyKind::kPrefixAware;
    config.kv_events.port = 1;
    made = std::make_unique<Router>(config, std::move(*open_policies(config)), 1, entropy);
    workers(two_pairs);
  }
  WorkerId id_of(const char* name) { return router().workers().find(name)->id; }
  Words asked() {
    const Words words = arrive({.prompt_tokens = 256, .blocks = kBlocks});
    answered(Stage::kDecode, 200);
    ended(Stage::kPrefill);
    ended(Stage::kDecode);
    return words;
  }

  const std::vector<uint64_t> kBlocks = {1, 2, 3, 4};
};

TEST_F(KvEventsTest, OnlyAnEngineThatTellsIsAskedForTokensAndOnlyOnce) {
  const Words sent = {"prefill#1@p0 offer", "decode#1@d0 fetch"};
  EXPECT_EQ(asked(), sent);
  step(KvToldAnew{id_of("p0"), /*complete=*/true});
  const Words learns = {"prefill#1@p0 offer", "learn", "decode#1@d0 fetch"};
  EXPECT_EQ(asked(), learns);
  step(TokensLearnt{"m", "", kBlocks, 2048, {}});
  EXPECT_EQ(asked(), learns);
  step(TokensLearnt{"m", "", kBlocks, 2048, std::vector<uint32_t>(64, 7)});
  EXPECT_NE(asked().at(1), "learn");
}

TEST_F(KvEventsTest, APromptGoesWhereItIsAndNotWhereItWas) {
  step(KvToldAnew{id_of("p0"), /*complete=*/true});
  step(KvToldAnew{id_of("p1"), /*complete=*/true});
  asked();
  step(TokensLearnt{"m", "", kBlocks, 2048, std::vector<uint32_t>(64, 7)});
  const openai::KvBlocksStored stored{
      .hashes = {1, 2, 3, 4}, .tokens = std::vector<uint32_t>(64, 7), .block_size = 16};
  step(KvTold{id_of("p1"), {stored}});
  EXPECT_EQ(asked().front(), "prefill#1@p1 offer");
  step(KvTold{id_of("p0"), {stored}});
  step(KvTold{id_of("p1"), {openai::KvBlocksRemoved{.hashes = {1}}}});
  EXPECT_EQ(asked().front(), "prefill#1@p0 offer");
}

TEST_F(KvEventsTest, WhoHasLeftSaysNothingAnyMore) {
  const WorkerId gone = id_of("p0");
  step(KvToldAnew{gone, /*complete=*/true});
  EXPECT_TRUE(router().kv()->listens_to(gone));
  workers({two_pairs[1], two_pairs[2]});
  step(KvToldAnew{gone, /*complete=*/true});
  step(KvTold{gone, {openai::KvBlocksCleared{}}});
  EXPECT_FALSE(router().kv()->listens_to(gone));
}

// --- slow prefills

struct HedgeTest : RouterTest {
  HedgeTest() {
    config.hedge_quantile = 0.95;
    workers(two_pairs);
    for (int request = 0; request < 50; ++request) {
      arrive({.prompt_tokens = 100});
      now += milliseconds(10);
      answered(Stage::kDecode, 200);
      ended(Stage::kPrefill);
      ended(Stage::kDecode);
    }
  }
  // Waits until something is due.
  Words wait() {
    EXPECT_LT(router().next_wakeup(), now + milliseconds(100));
    return sleep(router().next_wakeup() - now);
  }
  void expect_hedged() {
    EXPECT_EQ(arrive({.prompt_tokens = 100}), (Words{"prefill#1@p0 offer", "decode#1@d0 fetch"}));
    EXPECT_EQ(wait(), (Words{"hedge", "prefill#2@p1 offer", "decode#2@d1 fetch"}));
  }
};

TEST_F(HedgeTest, ASlowPrefillIsTriedAtAnotherPairAndTheFirstAnswerCounts) {
  expect_hedged();
  ended(Stage::kPrefill, 2);
  EXPECT_EQ(answered(Stage::kDecode, 200, 2),
            (Words{"cancel prefill#1", "release @p0", "cancel decode#1", "relay decode#2"}));
  EXPECT_EQ(ended(Stage::kDecode, 2), Words{"complete"});
  expect_idle();
}

TEST_F(HedgeTest, TheSlowPairMayStillBeTheFirst) {
  expect_hedged();
  EXPECT_EQ(answered(Stage::kDecode, 200, 1),
            (Words{"cancel prefill#2", "release @p1", "cancel decode#2", "relay decode#1"}));
  ended(Stage::kPrefill, 1);
  EXPECT_EQ(ended(Stage::kDecode, 1), Words{"complete"});
  expect_idle();
}

TEST_F(HedgeTest, OfTwoPairsOneMayFail) {
  expect_hedged();
  EXPECT_EQ(failed(Stage::kDecode, 2), (Words{"cancel prefill#2", "release @p1"}));
  EXPECT_EQ(answered(Stage::kDecode, 200, 1), Words{"relay decode#1"});
  ended(Stage::kPrefill, 1);
  ended(Stage::kDecode, 1);
  expect_idle();
}

TEST_F(HedgeTest, WhenBothFailTheRequestIsTriedAgain) {
  expect_hedged();
  failed(Stage::kPrefill, 1);
  EXPECT_EQ(answered(Stage::kDecode, 500, 2),
            (Words{"cancel prefill#2", "release @p1", "cancel decode#2", "retry failed", "degraded",
                   "decode#3@d0"}));
}

TEST_F(HedgeTest, AWorkerThatLeavesTakesOnlyItsOwnPairAlong) {
  expect_hedged();
  EXPECT_EQ(workers({two_pairs[1], two_pairs[2], two_pairs[3]}),
            (Words{"cancel prefill#1", "cancel decode#1"}));
  EXPECT_EQ(answered(Stage::kDecode, 200, 2), Words{"relay decode#2"});
}

TEST_F(HedgeTest, AClientThatLeavesEndsBoth) {
  expect_hedged();
  EXPECT_EQ(step(ClientLeft{kRequest}).back(), "forget");
  expect_idle();
}

TEST_F(HedgeTest, APrefillThatIsDoneIsNotSlow) {
  arrive({.prompt_tokens = 100});
  ended(Stage::kPrefill);
  EXPECT_EQ(wait(), Words{});
  EXPECT_GT(router().next_wakeup(), now + config.request_timeout / 2);
}

TEST_F(HedgeTest, ALongerPromptMayTakeLonger) {
  arrive({.prompt_tokens = 100});
  const Duration brief = router().next_wakeup() - now;
  step(ClientLeft{kRequest});
  arrive({.prompt_tokens = 10000});
  EXPECT_GT(router().next_wakeup() - now, 50 * brief);
}

TEST(PrefillPace, CallsTheShareSlowThatItIsToldTo) {
  Random random(7);
  PrefillPace pace(0.9);
  int slow = 0;
  for (int prefill = 0; prefill < 20000; ++prefill) {
    // The load changes halfway.
    const Duration took = milliseconds(1 + random.below(100)) * (prefill < 10000 ? 1 : 20);
    const auto limit = pace.limit(500);
    if (prefill % 10000 > 1000) {
      slow += limit && took > *limit ? 1 : 0;
    }
    pace.note(500, took);
  }
  EXPECT_NEAR(slow / 18000.0, 0.1, 0.02);
}

// --- prompts that are not worth a hand-over

TEST_F(RouterTest, AShortPromptGoesToTheDecodeWorkerAlone) {
  config.bypass_tokens = 64;
  workers(pair);
  EXPECT_EQ(arrive({.prompt_tokens = 63}), (Words{"bypass", "decode#1@d0"}));
  EXPECT_EQ(answered(Stage::kDecode, 200), Words{"relay decode#1"});
  EXPECT_EQ(ended(Stage::kDecode), Words{"complete"});
  EXPECT_EQ(arrive({.prompt_tokens = 64}), (Words{"prefill#1@p0 offer", "decode#1@d0 fetch"}));
}

TEST_F(RouterTest, WhatTheDecodeWorkerHasAlreadyDoesNotCountAgainstGoingThereAlone) {
  config.bypass_tokens = 64;
  config.decode_policy = PolicyKind::kPrefixAware;
  workers(pair);
  const RequestFacts facts{.prompt_tokens = 300, .blocks = {1, 2}};
  EXPECT_EQ(arrive(facts), (Words{"prefill#1@p0 offer", "decode#1@d0 fetch"}));
  answered(Stage::kDecode, 200);
  ended(Stage::kPrefill);
  EXPECT_EQ(ended(Stage::kDecode), Words{"complete"});
  EXPECT_EQ(arrive(facts), (Words{"bypass", "decode#1@d0"}));
}

TEST_F(RouterTest, ADecodeWorkerComputesAPromptThatWouldWait) {
  config.decode_prefills = DecodePrefills::kWaiting;
  workers({two_pairs[0], two_pairs[2], two_pairs[3]});
  EXPECT_EQ(arrive({.prompt_tokens = 150}), (Words{"prefill#1@p0 offer", "decode#1@d0 fetch"}));
  EXPECT_EQ(step(RequestArrived{RequestId{2}, {.prompt_tokens = 150}}),
            (Words{"bypass", "decode#1@d1"}));
  EXPECT_EQ(router().workers().find("d1")->prompts(), 150U);
  // Now d1 would not be done before p0.
  step(RequestArrived{RequestId{3}, {.prompt_tokens = 150, .pin_decode = "d1"}});
  EXPECT_EQ(router().workers().find("p0")->requests_in_flight, 2U);
  // Its first token says that the prompt is computed.
  step(LegAnswered{.leg = {RequestId{2}, 1, Stage::kDecode}, .status = 200});
  EXPECT_EQ(router().workers().find("d1")->prompts(), 0U);
}

TEST_F(RouterTest, AWorkerThatSharesItsCoresComputesItsPromptsUntilItHasCoresOfItsOwn) {
  std::vector<net::WorkerEntry> entries = pair;
  entries.back().shares_cores = true;
  workers(entries);
  EXPECT_EQ(arrive({.prompt_tokens = 5000}), (Words{"bypass", "decode#1@d0"}));
  EXPECT_EQ(step(RequestArrived{RequestId{2}, {.prompt_tokens = 10, .pin_prefill = "p0"}}).size(),
            2U)
      << "a pin names a pair";
  entries.back().shares_cores = false;
  workers(entries);
  EXPECT_EQ(step(RequestArrived{RequestId{3}, {.prompt_tokens = 5000}}),
            (Words{"prefill#1@p0 offer", "decode#1@d0 fetch"}));
}

TEST_F(RouterTest, AnEvenDecodeWorkerComputesAPromptAtOnceAndThePrefillWorkerTheNext) {
  config.decode_prefills = DecodePrefills::kEven;
  workers(pair);
  EXPECT_EQ(arrive({.prompt_tokens = 150}), (Words{"bypass", "decode#1@d0"}));
  EXPECT_EQ(step(RequestArrived{RequestId{2}, {.prompt_tokens = 150}}).size(), 2U);
  EXPECT_EQ(router().workers().find("p0")->requests_in_flight, 1U);
  EXPECT_EQ(failed(Stage::kDecode).front(), "retry unreachable");
  EXPECT_EQ(router().workers().find("d0")->prompts(), 0U) << "it is given up";
}

TEST_F(RouterTest, ADecodeWorkerComputesAPromptForWhichThePrefillWorkerHasNoRoom) {
  config.decode_prefills = DecodePrefills::kWaiting;
  config.prefill_in_flight = 1;
  workers({two_pairs[0], two_pairs[2], two_pairs[3]});
  EXPECT_EQ(arrive({.prompt_tokens = 10}), (Words{"prefill#1@p0 offer", "decode#1@d0 fetch"}));
  EXPECT_EQ(step(RequestArrived{RequestId{2}, {.prompt_tokens = 150}}).front(), "bypass");
}

TEST_F(RouterTest, APrefillWorkerServesARequestAloneWhileTheDecodeWorkerHasManyMore) {
  config.bypass_busy_requests = 2;
  workers(pair);
  EXPECT_EQ(arrive({.prompt_tokens = 10}), (Words{"prefill#1@p0 offer", "decode#1@d0 fetch"}));
  ended(Stage::kPrefill);
  EXPECT_EQ(step(RequestArrived{RequestId{2}, {.prompt_tokens = 10}}).size(), 2U);
  EXPECT_EQ(step(LegEnded{{RequestId{2}, 1, Stage::kPrefill}, true, ""}), Words{});
  // Two requests at d0, none at p0.
  EXPECT_EQ(step(RequestArrived{RequestId{3}, {.prompt_tokens = 10}}),
            (Words{"bypass", "decode#1@p0"}));
  EXPECT_EQ(router().workers().find("p0")->requests_in_flight, 1U);
  // Now p0 has one, too.
  EXPECT_EQ(step(RequestArrived{RequestId{4}, {.prompt_tokens = 10}}).size(), 2U);
  EXPECT_EQ(router().workers().find("d0")->requests_in_flight, 3U);
  EXPECT_EQ(step(LegAnswered{.leg = {RequestId{3}, 1, Stage::kDecode}, .status = 200}),
            Words{"relay decode#1"});
  EXPECT_EQ(step(LegEnded{{RequestId{3}, 1, Stage::kDecode}}), Words{"complete"});
}

TEST_F(RouterTest, APrefillWorkerServesAloneWhatNoDecodeWorkerHasRoomFor) {
  config.bypass_busy_requests = 1;
  config.decode_in_flight = 1;
  workers(pair);
  EXPECT_EQ(arrive({.prompt_tokens = 10}), (Words{"prefill#1@p0 offer", "decode#1@d0 fetch"}));
  ended(Stage::kPrefill);
  EXPECT_EQ(step(RequestArrived{RequestId{2}, {.prompt_tokens = 10}}),
            (Words{"bypass", "decode#1@p0"}));
}

TEST_F(RouterTest, APrefillWorkerServesAloneWhileThereIsNoDecodeWorker) {
  config.bypass_busy_requests = 4;
  workers({two_pairs[0]});
  EXPECT_TRUE(router().usable());
  EXPECT_EQ(arrive({.prompt_tokens = 10}), (Words{"bypass", "decode#1@p0"}));
  EXPECT_EQ(answered(Stage::kDecode, 200), Words{"relay decode#1"});
  EXPECT_EQ(ended(Stage::kDecode), Words{"complete"});
}

TEST_F(RouterTest, WhatAPrefillWorkerIsTooSmallForGoesToAPair) {
  config.bypass_busy_requests = 1;
  config.attempts = 1;
  workers({two_pairs[0]});
  EXPECT_EQ(arrive({.prompt_tokens = 10}), (Words{"bypass", "decode#1@p0"}));
  EXPECT_EQ(answered(Stage::kDecode, 400), (Words{"cancel decode#1"})) << "it waits";
  EXPECT_EQ(workers(pair), (Words{"prefill#2@p0 offer", "decode#2@d0 fetch"}));
  EXPECT_EQ(answered(Stage::kDecode, 400, 2),
            (Words{"cancel prefill#2", "release @p0", "relay decode#2"}));
}

TEST_F(RouterTest, APrefillWorkerServesAloneWhatHasNothingToDecode) {
  const RequestFacts reads{.hands_over = false, .prompt_only = true, .prompt_tokens = 10};
  config.attempts = 2;
  workers(pair);
  EXPECT_EQ(arrive(reads), (Words{"bypass", "decode#1@p0"}));
  EXPECT_EQ(failed(Stage::kDecode), (Words{"retry unreachable", "decode#2@d0"}))
      << "a decode worker computes prompts, too";
}

TEST_F(RouterTest, WhatHasNothingToDecodeWaitsForAPrefillWorkerThatIsFull) {
  const RequestFacts reads{.hands_over = false, .prompt_only = true, .prompt_tokens = 10};
  config.prefill_in_flight = 1;
  workers(pair);
  EXPECT_EQ(arrive(reads), (Words{"bypass", "decode#1@p0"}));
  EXPECT_EQ(step(RequestArrived{RequestId{2}, reads}), Words{});
  EXPECT_EQ(answered(Stage::kDecode, 200), Words{"relay decode#1"});
  EXPECT_EQ(ended(Stage::kDecode), (Words{"complete", "bypass", "decode#1@p0"}));
}

TEST_F(RouterTest, AnEngineOfAnotherMakeReadsNoPromptAlone) {
  const RequestFacts reads{.hands_over = false, .prompt_only = true, .prompt_tokens = 10};
  workers(foreign);
  EXPECT_EQ(arrive(reads), Words{"decode#1@d0"});
}

TEST_F(RouterTest, AnEngineOfAnotherMakeThatPrefillsServesNothingAlone) {
  config.bypass_busy_requests = 1;
  workers({foreign[0]});
  EXPECT_FALSE(router().usable());
  EXPECT_EQ(arrive({.prompt_tokens = 10}), Words{});
}

TEST_F(RouterTest, APinnedPrefillWorkerIsNotBypassed) {
  config.bypass_tokens = 64;
  workers(pair);
  EXPECT_EQ(arrive({.prompt_tokens = 1, .pin_prefill = "p0", .pin_decode = "d0"}),
            (Words{"prefill#1@p0 offer", "decode#1@d0 fetch"}));
}

// --- pairs between which KV is damaged

TEST_F(RouterTest, AvoidsASuspectPairForAWhileAndNoOther) {
  workers(two_pairs);
  EXPECT_EQ(arrive(), (Words{"prefill#1@p0 offer", "decode#1@d0 fetch"}));
  EXPECT_EQ(suspected(), (Words{"suspect", "cancel prefill#1", "release @p0", "cancel decode#1",
                                "retry failed", "prefill#2@p1 offer", "decode#2@d0 fetch"}));
  step(ClientLeft{kRequest});
  const auto pairs_of_ten = [&] {
    std::set<std::string> pairs;
    for (int i = 0; i < 10; ++i) {
      const Words sent = arrive({.pin_decode = i % 2 == 0 ? "d0" : "d1"});
      pairs.insert(sent.at(0).substr(10, 2) + sent.at(1).substr(9, 2));
      step(ClientLeft{kRequest});
    }
    return pairs;
  };
  EXPECT_EQ(pairs_of_ten(), (std::set<std::string>{"p0d1", "p1d0"}));
  EXPECT_EQ(router().suspicions().pairs(now).size(), 1U);
  now += PairSuspicions::kAvoidedFor;
  EXPECT_EQ(pairs_of_ten(), (std::set<std::string>{"p0d0", "p0d1"}));
  EXPECT_TRUE(router().suspicions().pairs(now).empty());
  expect_idle();
}

TEST_F(RouterTest, AvoidsADecodeWorkerWhoseOnlyPartnerIsSuspect) {
  workers({two_pairs[0], two_pairs[2], two_pairs[3]});
  EXPECT_EQ(arrive(), (Words{"prefill#1@p0 offer", "decode#1@d0 fetch"}));
  suspected();
  step(ClientLeft{kRequest});
  EXPECT_EQ(arrive(), (Words{"prefill#1@p0 offer", "decode#1@d1 fetch"}));
}

TEST_F(RouterTest, UsesASuspectPairWhereThereIsNoOther) {
  workers(pair);
  arrive();
  suspected();
  step(ClientLeft{kRequest});
  EXPECT_EQ(arrive(), (Words{"prefill#1@p0 offer", "decode#1@d0 fetch"}));
}

TEST_F(RouterTest, ForgetsTheSuspicionOfAWorkerThatHasLeft) {
  workers(two_pairs);
  arrive();
  suspected();
  step(ClientLeft{kRequest});
  workers({two_pairs[1], two_pairs[2]});
  EXPECT_TRUE(router().suspicions().empty());
}

// --- the straight ways

TEST_F(RouterTest, SendsBothLegsAtOnceWithOneTransferId) {
  workers(pair);
  EXPECT_EQ(arrive(), (Words{"prefill#1@p0 offer", "decode#1@d0 fetch"}));
  EXPECT_EQ(starts[0].transfer, starts[1].transfer);
  EXPECT_NE(starts[0].transfer, TransferId{});
  EXPECT_EQ(starts[1].peer, starts[0].worker);
  EXPECT_EQ(answered(Stage::kPrefill, 200), Words{});
  EXPECT_EQ(ended(Stage::kPrefill), Words{});
  EXPECT_EQ(answered(Stage::kDecode, 200), Words{"relay decode#1"});
  EXPECT_EQ(ended(Stage::kDecode), Words{"complete"});
  expect_idle();
}

TEST_F(RouterTest, SendsTheDecodeLegAfterThePrefillLegToForeignEngines) {
  workers(foreign);
  EXPECT_EQ(arrive(), Words{"prefill#1@p0 offer?"});
  EXPECT_EQ(answered(Stage::kPrefill, 200), Words{});
  EXPECT_EQ(ended(Stage::kPrefill, 1, true), Words{"decode#1@d0 fetch?"});
  EXPECT_EQ(answered(Stage::kDecode, 200), Words{"relay decode#1"});
  EXPECT_EQ(ended(Stage::kDecode), Words{"complete"});
  expect_idle();
}

TEST_F(RouterTest, SendsOneLegToAWorkerOfBothRoles) {
  workers({entry("b0", net::Role::kBoth)});
  EXPECT_EQ(arrive(), Words{"decode#1@b0"});
  EXPECT_EQ(answered(Stage::kDecode, 200), Words{"relay decode#1"});
  EXPECT_EQ(ended(Stage::kDecode), Words{"complete"});
  expect_idle();
}

TEST_F(RouterTest, SendsWhatGeneratesNothingToOneWorker) {
  workers(pair);
  EXPECT_EQ(arrive({.hands_over = false}), Words{"decode#1@d0"});
}

TEST_F(RouterTest, APrefillLegMayEndAfterTheReply) {
  workers(pair);
  arrive();
  answered(Stage::kDecode, 200);
  EXPECT_EQ(ended(Stage::kDecode), Words{"complete"});
  EXPECT_EQ(router().requests_alive(), 1U);
  EXPECT_EQ(step(ClientLeft{kRequest}), Words{});
  EXPECT_EQ(ended(Stage::kPrefill), Words{});
  expect_idle();
}

TEST_F(RouterTest, APrefillLegThatLingersIsCancelled) {
  workers(pair);
  arrive();
  answered(Stage::kDecode, 200);
  ended(Stage::kDecode);
  EXPECT_EQ(sleep(Router::kLingerMax), Words{"cancel prefill#1"});
  expect_idle();
}

TEST_F(RouterTest, APrefillLegThatFailsBesideTheReplyChangesNothing) {
  workers(pair);
  arrive();
  answered(Stage::kDecode, 200);
  EXPECT_EQ(answered(Stage::kPrefill, 500), Words{});
  EXPECT_EQ(failed(Stage::kPrefill), Words{});
  EXPECT_EQ(ended(Stage::kDecode), Words{"complete"});
  expect_idle();
}

// --- failures before the first byte

TEST_F(RouterTest, RetriesOnAnotherPrefillWorkerWhenOneIsDead) {
  workers(two_pairs);
  arrive();
  EXPECT_EQ(failed(Stage::kPrefill), (Words{"cancel decode#1", "retry unreachable",
                                            "prefill#2@p1 offer", "decode#2@d0 fetch"}));
  EXPECT_NE(starts[0].transfer, starts[2].transfer);
}

TEST_F(RouterTest, RetriesOnAnotherDecodeWorkerWhenOneIsDead) {
  workers(two_pairs);
  arrive();
  EXPECT_EQ(failed(Stage::kDecode), (Words{"cancel prefill#1", "release @p0", "retry unreachable",
                                           "prefill#2@p0 offer", "decode#2@d1 fetch"}));
}

TEST_F(RouterTest, RetriesWhenThePrefillLegSays500) {
  workers(two_pairs);
  arrive();
  EXPECT_EQ(answered(Stage::kPrefill, 500),
            (Words{"cancel prefill#1", "release @p0", "cancel decode#1", "retry failed",
                   "prefill#2@p1 offer", "decode#2@d0 fetch"}));
}

TEST_F(RouterTest, AvoidsBothWorkersOfAPairWhoseDecodeLegSays500) {
  workers(two_pairs);
  arrive();
  EXPECT_EQ(answered(Stage::kDecode, 500),
            (Words{"cancel prefill#1", "release @p0", "cancel decode#1", "retry failed",
                   "prefill#2@p1 offer", "decode#2@d1 fetch"}));
}

// Regression: one client's bad requests made all workers suspects.
TEST_F(RouterTest, ABadRequestIsNotABadWorker) {
  workers(two_pairs);
  arrive();
  for (uint32_t attempt = 1; attempt <= 3; ++attempt) {
    answered(Stage::kDecode, 500, attempt);
    sleep(milliseconds(200));
  }
  for (const auto& [id, worker] : router().workers().all()) {
    EXPECT_EQ(worker.failures, 0U) << worker.entry.name;
  }
}

TEST_F(RouterTest, AWorkerIsAtFaultForWhatAnotherOneServes) {
  workers(two_pairs);
  arrive();
  answered(Stage::kDecode, 500);
  EXPECT_EQ(router().workers().find("d0")->failures, 0U);
  answered(Stage::kDecode, 200, 2);
  EXPECT_EQ(router().workers().find("d0")->failures, 1U);
  EXPECT_EQ(router().workers().find("d1")->failures, 0U);
}

TEST_F(RouterTest, AvoidsOnlyThePrefillWorkerWhenTheHandOverFailed) {
  workers(two_pairs);
  arrive();
  EXPECT_EQ(answered(Stage::kDecode, 502),
            (Words{"cancel prefill#1", "release @p0", "cancel decode#1", "retry failed",
                   "prefill#2@p1 offer", "decode#2@d0 fetch"}));
  EXPECT_EQ(router().workers().find("d0")->failures, 0U);
}

TEST_F(RouterTest, AsksTheOnlyDecodeWorkerAgainWithAnotherPrefillWorker) {
  workers({entry("p0", net::Role::kPrefill), entry("p1", net::Role::kPrefill),
           entry("d0", net::Role::kDecode)});
  arrive();
  EXPECT_EQ(answered(Stage::kDecode, 500),
            (Words{"cancel prefill#1", "release @p0", "cancel decode#1", "retry failed",
                   "prefill#2@p1 offer", "decode#2@d0 fetch"}));
}

TEST_F(RouterTest, RetriesTheSecondHopAsAWholePair) {
  auto all = foreign;
  all.push_back(entry("d1", net::Role::kDecode, ""));
  workers(all);
  arrive();
  answered(Stage::kPrefill, 200);
  ended(Stage::kPrefill, 1, true);
  EXPECT_EQ(failed(Stage::kDecode), (Words{"retry unreachable", "prefill#2@p0 offer?"}));
  answered(Stage::kPrefill, 200, 2);
  EXPECT_EQ(ended(Stage::kPrefill, 2, true), Words{"decode#2@d1 fetch?"});
}

TEST_F(RouterTest, IgnoresWhatIsLateOfAnEarlierAttempt) {
  workers(two_pairs);
  arrive();
  failed(Stage::kPrefill);
  EXPECT_EQ(answered(Stage::kDecode, 200, 1), Words{});
  EXPECT_EQ(failed(Stage::kDecode, 1), Words{});
  EXPECT_EQ(ended(Stage::kPrefill, 1), Words{});
  EXPECT_EQ(answered(Stage::kDecode, 200, 2), Words{"relay decode#2"});
}

TEST_F(RouterTest, ASuspectIsNotChosenForTheNextRequest) {
  workers(two_pairs);
  arrive();
  failed(Stage::kPrefill);
  EXPECT_EQ(step(RequestArrived{RequestId{8}, {}})[0], "prefill#1@p1 offer");
}

TEST_F(RouterTest, RefusesAfterTheLastAttempt) {
  config.fallback = Fallback::kRefuse;
  workers(pair);
  arrive();
  EXPECT_EQ(failed(Stage::kPrefill), (Words{"cancel decode#1", "retry unreachable"}));
  EXPECT_EQ(sleep(milliseconds(100)), (Words{"prefill#2@p0 offer", "decode#2@d0 fetch"}));
  EXPECT_EQ(failed(Stage::kPrefill, 2), (Words{"cancel decode#2", "retry unreachable"}));
  EXPECT_EQ(sleep(milliseconds(200)), (Words{"prefill#3@p0 offer", "decode#3@d0 fetch"}));
  EXPECT_EQ(failed(Stage::kPrefill, 3), (Words{"cancel decode#3", "refuse 503"}));
  EXPECT_GT(refusal.retry_after_seconds, 0U);
  expect_idle();
}

TEST_F(RouterTest, AWorkerThatCannotBeReachedUsesUpNoAttempt) {
  workers({entry("b0", net::Role::kBoth)});
  arrive();
  for (uint32_t attempt = 1; attempt <= 5; ++attempt) {
    ASSERT_EQ(unreached(Stage::kDecode, attempt), Words{"retry unreachable"});
    const std::string next = "decode#" + std::to_string(attempt + 1) + "@b0";
    ASSERT_EQ(sleep(router().next_wakeup() - now), Words{next});
  }
  EXPECT_EQ(answered(Stage::kDecode, 200, 6), Words{"relay decode#6"});
}

TEST_F(RouterTest, AWorkerThatCannotBeReachedIsWaitedForAsLongAsOneThatIsNotThere) {
  config.queue_timeout = seconds(30);
  workers({entry("b0", net::Role::kBoth)});
  arrive();
  Instant begun = now;
  unreached(Stage::kDecode);
  uint32_t attempt = 1;
  const auto wait = [&] {
    Words words;
    while (words.empty() || words.front().starts_with("decode#")) {
      words = sleep(router().next_wakeup() - now);
      if (words.front().starts_with("decode#")) {
        unreached(Stage::kDecode, ++attempt);
      }
    }
    return words;
  };
  EXPECT_EQ(wait(), Words{"refuse 503"});
  EXPECT_EQ(now - begun, config.queue_timeout);
  EXPECT_EQ(refusal.error.message, "no usable pair of workers; the last one failed: refused");
  expect_idle();
}

TEST_F(RouterTest, TheWaitBeginsAnewAfterAWorkerHadTheRequest) {
  config.queue_timeout = seconds(1);
  workers({entry("b0", net::Role::kBoth)});
  arrive();
  unreached(Stage::kDecode);
  sleep(milliseconds(100));
  sleep(seconds(5));
  failed(Stage::kDecode, 2);
  EXPECT_EQ(sleep(milliseconds(200)), Words{"decode#3@b0"});
  unreached(Stage::kDecode, 3);
  EXPECT_EQ(sleep(milliseconds(400)), Words{"decode#4@b0"});
}

TEST_F(RouterTest, WaitsForTheBackoffOfTheOnlyWorkerRatherThanHammeringIt) {
  workers({entry("b0", net::Role::kBoth)});
  arrive();
  EXPECT_EQ(failed(Stage::kDecode), Words{"retry unreachable"});
  EXPECT_EQ(router().next_wakeup(), now + WorkerTable::kBackoffFirst);
  EXPECT_EQ(sleep(milliseconds(99)), Words{});
  EXPECT_EQ(sleep(milliseconds(1)), Words{"decode#2@b0"});
}

// --- the client's faults and overload

TEST_F(RouterTest, PassesA4xxThroughWithoutRetry) {
  workers(two_pairs);
  arrive();
  EXPECT_EQ(answered(Stage::kPrefill, 400), (Words{"cancel decode#1", "relay prefill#1"}));
  EXPECT_EQ(ended(Stage::kPrefill), Words{"complete"});
  EXPECT_EQ(router().workers().find("p0")->failures, 0U);
  expect_idle();
}

TEST_F(RouterTest, PassesTheDecodeLegs4xxThrough) {
  workers(two_pairs);
  arrive();
  EXPECT_EQ(answered(Stage::kDecode, 422),
            (Words{"cancel prefill#1", "release @p0", "relay decode#1"}));
  EXPECT_EQ(ended(Stage::kDecode), Words{"complete"});
  expect_idle();
}

TEST_F(RouterTest, TriesAnotherWhenOverloadedWithoutSuspicion) {
  workers(two_pairs);
  arrive();
  EXPECT_EQ(answered(Stage::kDecode, 503, 1, true),
            (Words{"cancel prefill#1", "release @p0", "cancel decode#1", "retry overloaded",
                   "prefill#2@p0 offer", "decode#2@d1 fetch"}));
  EXPECT_EQ(router().workers().find("d0")->failures, 0U);
  // All workers are tried: the client gets the last worker's own answer, with its Retry-After.
  EXPECT_EQ(answered(Stage::kDecode, 429, 2),
            (Words{"cancel prefill#2", "release @p0", "relay decode#2"}));
  EXPECT_EQ(ended(Stage::kDecode, 2), Words{"complete"});
  expect_idle();
}

TEST_F(RouterTest, OverloadedPrefillWorkersAreNoReasonToDecodeAlone) {
  workers(pair);
  arrive();
  EXPECT_EQ(answered(Stage::kPrefill, 503, 1, true), (Words{"cancel decode#1", "relay prefill#1"}));
}

TEST_F(RouterTest, AsksTheOnlyWorkerAgainAfterIts500AndShowsTheLastOne) {
  config.attempts = 2;
  workers({entry("b0", net::Role::kBoth)});
  arrive();
  EXPECT_EQ(answered(Stage::kDecode, 500), (Words{"cancel decode#1", "retry failed"}));
  EXPECT_EQ(router().requests_queued(), 1U);
  EXPECT_EQ(sleep(WorkerTable::kBackoffFirst), Words{"decode#2@b0"});
  EXPECT_EQ(answered(Stage::kDecode, 500, 2), Words{"relay decode#2"});
  EXPECT_EQ(ended(Stage::kDecode, 2), Words{"complete"});
  expect_idle();
}

TEST_F(RouterTest, AFailedHandOverOfTheOnlyPairIsTriedAgainNotShown) {
  config.fallback = Fallback::kRefuse;
  workers(pair);
  arrive();
  EXPECT_EQ(answered(Stage::kDecode, 502),
            (Words{"cancel prefill#1", "release @p0", "cancel decode#1", "retry failed"}));
  EXPECT_EQ(sleep(WorkerTable::kBackoffFirst), (Words{"prefill#2@p0 offer", "decode#2@d0 fetch"}));
  EXPECT_EQ(answered(Stage::kDecode, 200, 2), Words{"relay decode#2"});
}

TEST_F(RouterTest, AFailedHandOverWaitsForAnotherPrefillWorkerToJoin) {
  config.fallback = Fallback::kRefuse;
  workers(pair);
  arrive();
  answered(Stage::kDecode, 502);
  EXPECT_EQ(workers({entry("p0", net::Role::kPrefill), entry("p1", net::Role::kPrefill),
                     entry("d0", net::Role::kDecode)}),
            (Words{"prefill#2@p1 offer", "decode#2@d0 fetch"}));
}

TEST_F(RouterTest, RefusesWhatWaitedTooLongAfterAFailure) {
  config.fallback = Fallback::kRefuse;
  config.queue_timeout = milliseconds(50);
  workers(pair);
  arrive();
  answered(Stage::kPrefill, 500);
  EXPECT_EQ(sleep(milliseconds(50)), Words{"refuse 503"});
  EXPECT_NE(refusal.error.message.find("failed: it answered 500"), std::string::npos)
      << refusal.error.message;
  expect_idle();
}

TEST_F(RouterTest, ShowsAPinnedRequestTheFailureOfItsPair) {
  for (const int status : {500, 502, 503}) {
    made.reset();
    workers(pair);
    arrive({.pin_prefill = "p0", .pin_decode = "d0"});
    EXPECT_EQ(answered(Stage::kDecode, status),
              (Words{"cancel prefill#1", "release @p0", "relay decode#1"}));
  }
}

TEST_F(RouterTest, ShowsTheClientTheLastAnswerWhenNoAttemptIsLeft) {
  config.attempts = 2;
  workers({entry("b0", net::Role::kBoth), entry("b1", net::Role::kBoth),
           entry("b2", net::Role::kBoth)});
  arrive();
  EXPECT_EQ(answered(Stage::kDecode, 500),
            (Words{"cancel decode#1", "retry failed", "decode#2@b1"}));
  EXPECT_EQ(answered(Stage::kDecode, 500, 2), Words{"relay decode#2"});
}

// --- without prefill workers

TEST_F(RouterTest, DecodesAloneWithoutPrefillWorkers) {
  workers({entry("d0", net::Role::kDecode)});
  EXPECT_TRUE(router().usable());
  EXPECT_EQ(arrive(), (Words{"degraded", "decode#1@d0"}));
}

TEST_F(RouterTest, RefusesAtOnceWhileNoWorkerHasEverAnswered) {
  EXPECT_EQ(arrive(), Words{});
  EXPECT_EQ(step(NobodyThere{"no worker yet"}), Words{"refuse 503"});
  EXPECT_EQ(arrive(), Words{"refuse 503"});
  workers({entry("d0", net::Role::kDecode)});
  EXPECT_EQ(arrive(), (Words{"degraded", "decode#1@d0"}));
}

TEST_F(RouterTest, ServesWithoutWorkersWhileARequestWouldStartThem) {
  const auto wakes = [this] { step(WorkersChanged{.workers = {}, .asleep = false}); };
  const auto sleeps = [this] { step(WorkersChanged{.workers = {}, .asleep = true}); };
  workers({});
  EXPECT_FALSE(router().serves(now)) << "the job has just been started";
  workers(pair);
  EXPECT_TRUE(router().serves(now));
  sleeps();
  now += 10 * config.queue_timeout;
  EXPECT_TRUE(router().serves(now));
  wakes();
  EXPECT_TRUE(router().serves(now + config.queue_timeout - milliseconds(1)));
  EXPECT_FALSE(router().serves(now + config.queue_timeout)) << "the workers did not come";
  workers(pair);
  workers({});
  EXPECT_FALSE(router().serves(now)) << "the workers came and died";
  sleeps();
  EXPECT_TRUE(router().serves(now));
  step(DrainRequested{});
  EXPECT_FALSE(router().serves(now));
}

TEST_F(RouterTest, ServesOnIfARequestComesWhileTheLastWorkersLeave) {
  std::vector<net::WorkerEntry> leaving = pair;
  for (net::WorkerEntry& worker : leaving) {
    worker.standing = net::Standing::kLeaving;
  }
  workers(pair);
  step(WorkersChanged{.workers = leaving, .asleep = true});
  workers(leaving);
  workers({leaving[1]});
  workers({});
  EXPECT_TRUE(router().serves(now));
}

TEST_F(RouterTest, DoesNotServeWithoutWorkersIfItWouldRefuseAtOnce) {
  config.queue_max = 1;
  step(WorkersChanged{.workers = {}, .asleep = true});
  EXPECT_TRUE(router().serves(now));
  arrive();
  EXPECT_FALSE(router().serves(now)) << "the queue is full";
  config.queue_timeout = Duration::zero();
  Router impatient(config, 1);
  std::vector<RouterEffect> effects;
  impatient.step(WorkersChanged{.workers = {}, .asleep = true}, now, effects);
  EXPECT_FALSE(impatient.serves(now));
}

TEST_F(RouterTest, DecodesAloneWhenTheOnlyPrefillWorkerIsDead) {
  workers(pair);
  arrive();
  EXPECT_EQ(failed(Stage::kPrefill),
            (Words{"cancel decode#1", "retry unreachable", "degraded", "decode#2@d0"}));
}

TEST_F(RouterTest, RefusesToDecodeAloneWhenToldSo) {
  config.fallback = Fallback::kRefuse;
  workers({entry("d0", net::Role::kDecode)});
  EXPECT_FALSE(router().usable());
  EXPECT_EQ(arrive(), Words{});
  EXPECT_EQ(router().requests_queued(), 1U);
  EXPECT_EQ(sleep(config.queue_timeout), Words{"refuse 503"});
  expect_idle();
}

TEST_F(RouterTest, DecodesAloneWhenAPrefillReplyNamesNoKv) {
  workers(foreign);
  arrive();
  answered(Stage::kPrefill, 200);
  EXPECT_EQ(ended(Stage::kPrefill, 1, false), (Words{"degraded", "decode#1@d0"}));
}

TEST_F(RouterTest, FailsThePrefillLegThatNamesNoKvWhenToldSo) {
  config.fallback = Fallback::kRefuse;
  config.attempts = 1;
  workers(foreign);
  arrive();
  answered(Stage::kPrefill, 200);
  EXPECT_EQ(ended(Stage::kPrefill, 1, false), Words{"refuse 503"});
  expect_idle();
}

// --- the first byte is out

TEST_F(RouterTest, AbortsWhenTheUpstreamDiesAfterTheFirstByte) {
  workers(two_pairs);
  arrive();
  answered(Stage::kDecode, 200);
  EXPECT_EQ(failed(Stage::kDecode), (Words{"cancel prefill#1", "abort"}));
  expect_idle();
}

TEST_F(RouterTest, AbortsAtTheDeadlineOfTheRequest) {
  workers(pair);
  arrive();
  answered(Stage::kDecode, 200);
  EXPECT_EQ(sleep(config.request_timeout), (Words{"cancel prefill#1", "cancel decode#1", "abort"}));
  expect_idle();
}

TEST_F(RouterTest, RefusesAtTheDeadlineBeforeTheFirstByte) {
  workers(pair);
  arrive();
  EXPECT_EQ(sleep(config.request_timeout),
            (Words{"cancel prefill#1", "release @p0", "cancel decode#1", "refuse 504"}));
  expect_idle();
}

// --- clients and workers leave

TEST_F(RouterTest, CancelsBothLegsWhenTheClientLeaves) {
  workers(pair);
  arrive();
  EXPECT_EQ(step(ClientLeft{kRequest}),
            (Words{"cancel prefill#1", "release @p0", "cancel decode#1", "forget"}));
  expect_idle();
}

TEST_F(RouterTest, ForgetsAQueuedRequestWhoseClientLeaves) {
  arrive();
  EXPECT_EQ(step(ClientLeft{kRequest}), Words{"forget"});
  expect_idle();
}

TEST_F(RouterTest, RetriesElsewhereWhenAWorkerLeavesBeforeTheFirstByte) {
  workers(two_pairs);
  arrive();
  EXPECT_EQ(workers({two_pairs[1], two_pairs[2], two_pairs[3]}),
            (Words{"cancel prefill#1", "cancel decode#1", "retry worker_left", "prefill#2@p1 offer",
                   "decode#2@d0 fetch"}));
}

TEST_F(RouterTest, RetriesWhenThePlannedDecodeWorkerOfATwoHopLeaves) {
  workers(foreign);
  arrive();
  EXPECT_EQ(workers({foreign[0]}), (Words{"cancel prefill#1", "retry worker_left"}));
  EXPECT_EQ(workers(foreign), Words{"prefill#2@p0 offer?"});
}

// --- workers of different speed

struct PaceTest : RouterTest {
  PaceTest() { config.measured_load = true; }
  // The prefill worker computes `times` prompts.
  void measure(const std::string& name, Duration each, int times = 8) {
    for (int request = 0; request < times; ++request) {
      arrive({.prompt_tokens = 100, .pin_prefill = name});
      now += each;
      ended(Stage::kPrefill);
      answered(Stage::kDecode, 200);
      ended(Stage::kDecode);
    }
  }
  std::string chosen() {
    const Words words = arrive({.prompt_tokens = 100});
    step(ClientLeft{kRequest});
    return words.at(0);
  }
};

TEST_F(PaceTest, ALoadAtASlowWorkerCountsForMore) {
  workers(two_pairs);
  EXPECT_EQ(chosen(), "prefill#1@p0 offer");
  measure("p0", milliseconds(100));
  EXPECT_EQ(chosen(), "prefill#1@p0 offer") << "nobody is known to be faster";
  measure("p1", milliseconds(20));
  EXPECT_EQ(chosen(), "prefill#1@p1 offer");
  // With four prompts waiting there, the fifth finishes at the slow worker as soon or sooner.
  const auto load = [this](uint64_t tokens) {
    step(LoadChanged{.name = "p1", .engine_id = "e1", .load = {.tokens_queued = tokens}});
  };
  load(390);
  EXPECT_EQ(chosen(), "prefill#1@p1 offer");
  load(410);
  EXPECT_EQ(chosen(), "prefill#1@p0 offer");
}

TEST_F(PaceTest, WorkersOfAboutTheSameSpeedAreEqual) {
  workers(two_pairs);
  measure("p0", milliseconds(13));
  measure("p1", milliseconds(10));
  EXPECT_EQ(chosen(), "prefill#1@p0 offer");
}

TEST_F(PaceTest, WhoRefusesSoonIsNotFast) {
  workers(two_pairs);
  measure("p0", milliseconds(100));
  for (int request = 0; request < 20; ++request) {
    arrive({.prompt_tokens = 100, .pin_prefill = "p1"});
    answered(Stage::kPrefill, 400);
    ended(Stage::kPrefill);
  }
  EXPECT_EQ(chosen(), "prefill#1@p0 offer");
}

// --- addresses that are learnt from replies

struct LearntAddressTest : RouterTest {
  LearntAddressTest() { workers(foreign); }
  // Sends a request in two hops. Its reply names the address.
  void learn(const std::string& kv_address) {
    EXPECT_EQ(arrive(), Words{"prefill#1@p0 offer?"});
    EXPECT_EQ(prefilled_at(kv_address), Words{"decode#1@d0 fetch?"});
    EXPECT_EQ(starts[starts.size() - 1].transfer, starts[starts.size() - 2].transfer);
    finish();
  }
  void finish(uint32_t attempt = 1) {
    answered(Stage::kDecode, 200, attempt);
    EXPECT_EQ(ended(Stage::kDecode, attempt), Words{"complete"});
    expect_idle();
  }
};

TEST_F(LearntAddressTest, IsUsedForBothLegsAtOnce) {
  learn("a");
  EXPECT_EQ(router().workers().find("p0")->kv_address(), "a");
  EXPECT_EQ(arrive(), (Words{"prefill#1@p0 offer", "decode#1@d0 fetch"}));
  EXPECT_EQ(prefilled_at("a"), Words{});
  finish();
}

TEST_F(LearntAddressTest, IsCorrectedByTheReply) {
  learn("a");
  arrive();
  EXPECT_EQ(prefilled_at("b"), (Words{"cancel decode#1", "decode#2@d0 fetch?"}));
  EXPECT_EQ(starts[starts.size() - 1].transfer, starts[starts.size() - 2].transfer);
  EXPECT_EQ(failed(Stage::kDecode, 1), Words{}) << "late";
  finish(2);
  // An address that keeps changing means several engines, so it is relearned each time.
  learn("a");
  learn("a");
}

TEST_F(LearntAddressTest, IsNotWaitedForWhenTheReplyNamesNone) {
  learn("a");
  arrive();
  EXPECT_EQ(ended(Stage::kPrefill), (Words{"cancel decode#1", "degraded", "decode#2@d0"}));
  finish(2);
}

TEST_F(LearntAddressTest, IsForgottenWithAFailure) {
  learn("a");
  arrive();
  EXPECT_EQ(failed(Stage::kPrefill),
            (Words{"cancel decode#1", "retry unreachable", "degraded", "decode#2@d0"}));
  finish(2);
  sleep(seconds(1));
  learn("b");
  arrive();
  EXPECT_EQ(answered(Stage::kDecode, 500),
            (Words{"cancel prefill#1", "release @p0", "cancel decode#1", "retry failed", "degraded",
                   "decode#2@d0"}));
  finish(2);
  learn("c");
}

TEST_F(LearntAddressTest, IsGivenUpForAnAttemptThatRunsBesideIt) {
  config.hedge_quantile = 0.95;
  made.reset();
  const net::WorkerEntry other = entry("p1", net::Role::kPrefill, "");
  workers({foreign[0], other, foreign[1]});
  for (int request = 0; request < 50; ++request) {
    arrive({.prompt_tokens = 100, .pin_prefill = request % 2 == 0 ? "p0" : "p1"});
    now += milliseconds(10);
    prefilled_at(request % 2 == 0 ? "a" : "b");
    finish();
  }
  EXPECT_EQ(arrive({.prompt_tokens = 100}), (Words{"prefill#1@p0 offer", "decode#1@d0 fetch"}));
  EXPECT_EQ(sleep(router().next_wakeup() - now),
            (Words{"hedge", "prefill#2@p1 offer", "decode#2@d0 fetch"}));
  EXPECT_EQ(prefilled_at("another"), (Words{"release @p0", "cancel decode#1"}));
  EXPECT_EQ(prefilled_at("b", 2), Words{});
  finish(2);
}

// Regression: the timer of a slow prefill refused a request that had continued in two hops.
TEST_F(LearntAddressTest, CorrectedLeavesARequestAllItsTime) {
  config.hedge_quantile = 0.95;
  made.reset();
  workers(foreign);
  for (int request = 0; request < 50; ++request) {
    arrive({.prompt_tokens = 100});
    now += milliseconds(10);
    prefilled_at("a");
    finish();
  }
  arrive({.prompt_tokens = 100});
  EXPECT_LT(router().next_wakeup(), now + milliseconds(100));
  EXPECT_EQ(prefilled_at("b"), (Words{"cancel decode#1", "decode#2@d0 fetch?"}));
  EXPECT_EQ(router().next_wakeup(), now + config.request_timeout);
  finish(2);
}

TEST_F(LearntAddressTest, IsThatOfThisIncarnation) {
  learn("a");
  workers({foreign[1]});
  workers(foreign);
  learn("b");
}

TEST_F(RouterTest, KeepsRelayingFromAWorkerThatLeft) {
  workers(pair);
  arrive();
  answered(Stage::kDecode, 200);
  EXPECT_EQ(workers({}), Words{});
  EXPECT_EQ(ended(Stage::kPrefill), Words{});
  EXPECT_EQ(ended(Stage::kDecode), Words{"complete"});
  expect_idle();
}

TEST_F(RouterTest, QueuesUntilAPairIsThere) {
  config.fallback = Fallback::kRefuse;
  EXPECT_EQ(arrive(), Words{});
  EXPECT_EQ(workers({pair[0]}), Words{});
  EXPECT_EQ(workers(pair), (Words{"prefill#1@p0 offer", "decode#1@d0 fetch"}));
}

TEST_F(RouterTest, AProbeThatSucceedsEndsSuspicionAndWakesTheQueue) {
  workers({entry("b0", net::Role::kBoth)});
  arrive();
  failed(Stage::kDecode);
  EXPECT_EQ(step(WorkerProbed{"b0", false}), Words{});
  EXPECT_EQ(step(WorkerProbed{"b0", true}), Words{"decode#2@b0"});
}

// --- refusals at the door

TEST_F(RouterTest, RefusesAModelThatNobodyServes) {
  workers(pair);
  EXPECT_EQ(arrive({.model = "other"}), Words{"refuse 404"});
  EXPECT_EQ(refusal.error.code, "model_not_found");
  expect_idle();
}

TEST_F(RouterTest, RefusesMoreThanRequestsMax) {
  config.requests_max = 1;
  workers(pair);
  arrive();
  EXPECT_EQ(step(RequestArrived{RequestId{8}, {}}), Words{"refuse 503"});
  EXPECT_EQ(refusal.retry_after_seconds, 1U);
}

TEST_F(RouterTest, UsesPinnedWorkersAndTriesThemOnce) {
  workers(two_pairs);
  EXPECT_EQ(arrive({.pin_prefill = "p1", .pin_decode = "d1"}),
            (Words{"prefill#1@p1 offer", "decode#1@d1 fetch"}));
  EXPECT_EQ(failed(Stage::kPrefill), (Words{"cancel decode#1", "refuse 503"}));
  expect_idle();
}

TEST_F(RouterTest, RefusesAPinThatIsNotThereOrOfTheWrongRole) {
  workers(two_pairs);
  EXPECT_EQ(arrive({.pin_prefill = "p9"}), Words{"refuse 503"});
  EXPECT_EQ(arrive({.pin_prefill = "d0"}), Words{"refuse 503"});
}

net::WorkerEntry standing(net::WorkerEntry entry, net::Standing standing) {
  entry.standing = standing;
  return entry;
}

TEST_F(RouterTest, AWorkerThatIsNotProvedGetsOnlyTheLaunchersProbes) {
  workers({standing(entry("p0", net::Role::kPrefill), net::Standing::kProving),
           standing(entry("d0", net::Role::kDecode), net::Standing::kProving)});
  EXPECT_EQ(arrive({.pin_prefill = "p0", .pin_decode = "d0"}), Words{"refuse 503"});
  EXPECT_EQ(arrive({.pin_prefill = "p0", .pin_decode = "d0", .probes = true}),
            (Words{"prefill#1@p0 offer", "decode#1@d0 fetch"}));
  step(ClientLeft{kRequest});
  EXPECT_EQ(arrive(), Words{}) << "it waits";
  EXPECT_EQ(workers({entry("p0", net::Role::kPrefill), entry("d0", net::Role::kDecode)}),
            (Words{"prefill#1@p0 offer", "decode#1@d0 fetch"}));
}

TEST_F(RouterTest, AWorkerThatLeavesFinishesItsRequestsAndGetsNoNewOnes) {
  const auto leaving = standing(entry("d0", net::Role::kDecode), net::Standing::kLeaving);
  workers({entry("p0", net::Role::kPrefill), entry("d0", net::Role::kDecode)});
  arrive();
  EXPECT_EQ(workers({entry("p0", net::Role::kPrefill), leaving}), Words{});
  EXPECT_EQ(answered(Stage::kDecode, 200), Words{"relay decode#1"});
  ended(Stage::kPrefill);
  EXPECT_EQ(ended(Stage::kDecode), Words{"complete"});
  EXPECT_EQ(arrive(), Words{});
  EXPECT_EQ(workers({entry("p0", net::Role::kPrefill), leaving, entry("d1", net::Role::kDecode)}),
            (Words{"prefill#1@p0 offer", "decode#1@d1 fetch"}));
}

// Engines of different makes cannot read each other's KV.
TEST_F(RouterTest, OnlyWorkersThatSpeakTheSameArePaired) {
  net::WorkerEntry other = entry("p0", net::Role::kPrefill);
  other.protocol = net::Protocol::kSglang;
  workers({other, entry("p1", net::Role::kPrefill), entry("d0", net::Role::kDecode)});
  for (int i = 0; i < 4; ++i) {
    EXPECT_EQ(arrive(), (Words{"prefill#1@p1 offer", "decode#1@d0 fetch"}));
    step(ClientLeft{kRequest});
  }
}

TEST_F(RouterTest, DrainsWhatIsAliveAndRefusesTheRest) {
  workers(pair);
  arrive();
  EXPECT_EQ(step(DrainRequested{}), Words{});
  EXPECT_EQ(step(RequestArrived{RequestId{8}, {}}), Words{"refuse 503"});
  ended(Stage::kPrefill);
  answered(Stage::kDecode, 200);
  EXPECT_EQ(ended(Stage::kDecode), (Words{"complete", "drained"}));
}

TEST_F(RouterTest, IsDrainedAtOnceWhenIdle) { EXPECT_EQ(step(DrainRequested{}), Words{"drained"}); }

TEST_F(RouterTest, KvThatNobodyWillFetchIsReleasedAtOnce) {
  workers(pair);
  arrive();
  ended(Stage::kPrefill);
  EXPECT_EQ(answered(Stage::kDecode, 400), (Words{"release @p0", "relay decode#1"}));
  EXPECT_EQ(ended(Stage::kDecode), Words{"complete"});
  expect_idle();
}

TEST_F(RouterTest, ClientThatLeavesAfterThePrefillReleasesItsKv) {
  workers(pair);
  arrive();
  ended(Stage::kPrefill);
  EXPECT_EQ(step(ClientLeft{kRequest}), (Words{"release @p0", "cancel decode#1", "forget"}));
  expect_idle();
}

TEST_F(RouterTest, FetchedKvIsNotReleased) {
  workers(pair);
  arrive();
  ended(Stage::kPrefill);
  EXPECT_EQ(answered(Stage::kDecode, 200), Words{"relay decode#1"});
  EXPECT_EQ(step(ClientLeft{kRequest}), (Words{"cancel decode#1", "forget"}));
  expect_idle();
}

// --- who is served first

struct QueueTest : RouterTest {
  void SetUp() override {
    config.prefill_in_flight = 1;
    config.queue_max = 2;
    workers(pair);
    arrive_as(100);  // It takes all the room.
  }
  Words arrive_as(uint64_t id, RequestFacts facts = {}) {
    facts.prompt_tokens = 100;
    return step(RequestArrived{RequestId{id}, std::move(facts)});
  }
  // Frees room for one request. Returns the request that gets it.
  uint64_t next() {
    const RequestId last = starts.back().leg.request;
    step(LegEnded{{last, 1, Stage::kPrefill}});
    return starts.back().leg.request.value;
  }
};

TEST_F(QueueTest, HigherPrioritiesAreServedFirst) {
  arrive_as(1, {.priority = 0});
  arrive_as(2, {.priority = 5});
  EXPECT_EQ(next(), 2U);
  EXPECT_EQ(next(), 1U);
}

TEST_F(QueueTest, TenantsTakeTurns) {
  config.queue_max = 10;
  made.reset();
  workers(pair);
  arrive_as(100, {.tenant = 1});
  arrive_as(1, {.tenant = 1});
  arrive_as(2, {.tenant = 1});
  arrive_as(3, {.tenant = 2});
  EXPECT_EQ(next(), 3U);
  EXPECT_EQ(next(), 1U);
}

TEST_F(QueueTest, WhoeverWouldBeServedLastMakesRoom) {
  arrive_as(1, {.priority = 1});
  arrive_as(2, {.priority = 1});
  EXPECT_EQ(arrive_as(3, {.priority = 0}), Words{"refuse 503"});
  EXPECT_EQ(refusal.id, RequestId{3});
  EXPECT_EQ(arrive_as(4, {.priority = 2}), Words{"refuse 503"});
  EXPECT_EQ(refusal.id, RequestId{2});
  EXPECT_GT(refusal.retry_after_seconds, 0U);
  EXPECT_EQ(router().requests_queued(), 2U);
}

TEST_F(QueueTest, ARequestExpiresByItsOwnTimeout) {
  arrive_as(1, {.timeout = seconds(1)});
  EXPECT_EQ(sleep(milliseconds(900)), Words{});
  EXPECT_EQ(sleep(milliseconds(200)), Words{"refuse 504"});
  EXPECT_EQ(refusal.error.message, "the request took longer than its own timeout");
}

// --- streams that go on at another worker

struct ContinuationTest : RouterTest {
  void SetUp() override {
    auto two = pair;
    two.push_back(entry("d1", net::Role::kDecode));
    workers(two);
    arrive();
    answered(Stage::kDecode, 200);
    ended(Stage::kPrefill);
  }
  Words broke(uint32_t attempt, bool resumable = true) {
    return step(LegFailed{leg(Stage::kDecode, attempt), {ErrorCode::kUnavailable, "x"}, resumable});
  }
};

TEST_F(ContinuationTest, AStreamWhoseWorkerDiesGoesOnElsewhere) {
  EXPECT_EQ(broke(1), (Words{"continued", "prefill#2@p0 offer", "decode#2@d1 fetch resume"}));
  EXPECT_EQ(answered(Stage::kDecode, 200, 2), Words{"relay decode#2"});
  ended(Stage::kPrefill, 2);
  EXPECT_EQ(ended(Stage::kDecode, 2), Words{"complete"});
  expect_idle();
}

TEST_F(ContinuationTest, AStreamWhoseTokensAreUnknownIsCut) {
  EXPECT_EQ(broke(1, false), Words{"abort"});
  expect_idle();
}

TEST_F(ContinuationTest, GoesOnNoMoreThanContinuationsTimes) {
  config.continuations = 1;
  made.reset();
  SetUp();
  broke(1);
  answered(Stage::kDecode, 200, 2);
  ended(Stage::kPrefill, 2);
  EXPECT_EQ(broke(2), Words{"abort"});
  expect_idle();
}

TEST_F(ContinuationTest, WaitsForAWorkerToComeBack) {
  workers({entry("p0", net::Role::kPrefill)});  // The worker's connection lives on for a while.
  EXPECT_EQ(broke(1), Words{"continued"});
  auto back = entry("d0", net::Role::kDecode);
  back.engine_id = "e2";
  EXPECT_EQ(workers({entry("p0", net::Role::kPrefill), back}),
            (Words{"prefill#2@p0 offer", "decode#2@d0 fetch resume"}));
}

TEST_F(ContinuationTest, HasAllItsAttemptsAgain) {
  config.attempts = 2;
  made.reset();
  SetUp();
  broke(1);
  EXPECT_EQ(failed(Stage::kDecode, 2),
            (Words{"cancel prefill#2", "release @p0", "retry unreachable"}));
  EXPECT_EQ(sleep(milliseconds(200)), (Words{"prefill#3@p0 offer", "decode#3@d0 fetch resume"}));
  EXPECT_EQ(answered(Stage::kDecode, 200, 3), Words{"relay decode#3"});
}

// An error can no longer be relayed into the stream, so the stream is cut.
TEST_F(ContinuationTest, ARefusalIsNeverRelayedIntoAStream) {
  broke(1);
  EXPECT_EQ(answered(Stage::kDecode, 400, 2),
            (Words{"cancel prefill#2", "release @p0", "cancel decode#2", "abort"}));
  expect_idle();
}

TEST_F(ContinuationTest, IsCutWhenNobodyComesInTime) {
  workers({});
  EXPECT_EQ(broke(1), Words{"continued"});
  EXPECT_EQ(sleep(config.queue_timeout), Words{"abort"});
  expect_idle();
}

TEST_F(ContinuationTest, APinnedStreamIsCut) {
  made.reset();
  workers(pair);
  arrive({.pin_decode = "d0"});
  answered(Stage::kDecode, 200);
  ended(Stage::kPrefill);
  EXPECT_EQ(broke(1), Words{"abort"});
}

// --- late binding

struct LateBinding : RouterTest {
  LateBinding() {
    config.prefill_in_flight = 1;
    workers(pair);
  }
  Words arrive_as(uint64_t id, RequestFacts facts = {}) {
    return step(RequestArrived{RequestId{id}, std::move(facts)});
  }
  static LegId leg_of(uint64_t id, Stage stage) { return {RequestId{id}, 1, stage}; }
};

TEST_F(LateBinding, WhoFindsNoRoomWaitsAndIsServedInOrderOfArrival) {
  EXPECT_EQ(arrive_as(1), (Words{"prefill#1@p0 offer", "decode#1@d0 fetch"}));
  EXPECT_EQ(arrive_as(3), Words{});
  EXPECT_EQ(arrive_as(2), Words{});
  EXPECT_EQ(router().requests_queued(), 2U);
  // The prefill worker has room for the request that arrived first, not the one with the lowest id.
  EXPECT_EQ(step(LegEnded{leg_of(1, Stage::kPrefill)}),
            (Words{"prefill#1@p0 offer", "decode#1@d0 fetch"}));
  EXPECT_EQ(starts.back().leg.request, RequestId{3});
  EXPECT_EQ(router().requests_queued(), 1U);
}

// Regression: each choice took a turn, even one that came to nothing.
TEST_F(LateBinding, WhoWaitsTakesNoTurn) {
  config.decode_policy = PolicyKind::kRoundRobin;
  made.reset();
  auto more = pair;
  more.push_back(entry("d1", net::Role::kDecode));
  workers(more);
  EXPECT_EQ(arrive_as(1), (Words{"prefill#1@p0 offer", "decode#1@d0 fetch"}));
  EXPECT_EQ(arrive_as(2), Words{});
  EXPECT_EQ(step(LegEnded{leg_of(1, Stage::kPrefill)}),
            (Words{"prefill#1@p0 offer", "decode#1@d1 fetch"}));
}

TEST_F(LateBinding, ABusyPrefillWorkerIsNoReasonToDecodeAlone) {
  arrive_as(1);
  EXPECT_EQ(arrive_as(2), Words{});
  EXPECT_EQ(config.fallback, Fallback::kDecodeAlone);
}

TEST_F(LateBinding, WhoWaitedTooLongForRoomIsToldSo) {
  arrive_as(1);
  arrive_as(2);
  EXPECT_EQ(sleep(config.queue_timeout), Words{"refuse 503"});
  EXPECT_EQ(refusal.error.message, "all workers were busy for queue_timeout");
  EXPECT_GT(refusal.retry_after_seconds, 0U);
}

TEST_F(LateBinding, WhoLeavesTheQueueIsNotServed) {
  arrive_as(1);
  arrive_as(2);
  EXPECT_EQ(step(ClientLeft{RequestId{2}}), Words{"forget"});
  EXPECT_EQ(step(LegEnded{leg_of(1, Stage::kPrefill)}), Words{});
  EXPECT_EQ(router().requests_queued(), 0U);
}

TEST_F(LateBinding, AModelWhoseWorkersAreBusyHoldsUpNoOther) {
  auto other = pair;
  other.push_back(entry("p1", net::Role::kPrefill));
  other.push_back(entry("d1", net::Role::kDecode));
  other[2].model = other[3].model = "n";
  workers(other);
  arrive_as(1, {.model = "m"});
  arrive_as(2, {.model = "n"});
  arrive_as(3, {.model = "m"});
  arrive_as(4, {.model = "n"});
  step(LegEnded{leg_of(2, Stage::kPrefill)});
  EXPECT_EQ(starts.back().leg.request, RequestId{4});
}

// --- pauses (router_pause.cc)

AdmissionSet closed(net::PauseMode mode) { return {.closed = true, .mode = mode}; }
constexpr AdmissionSet kOpen{.closed = false};

TEST_F(RouterTest, WhileAdmissionIsClosedRequestsWaitLongerThanQueueTimeout) {
  workers(pair);
  EXPECT_EQ(step(closed(net::PauseMode::kWait)), Words{"quiet"});
  EXPECT_EQ(arrive(), Words{});
  EXPECT_EQ(sleep(config.queue_timeout + seconds(1)), Words{});
  EXPECT_EQ(router().requests_queued(), 1U);
  EXPECT_EQ(step(kOpen), (Words{"prefill#1@p0 offer", "decode#1@d0 fetch"}));
}

TEST_F(RouterTest, AWaitingRequestKeepsItsOwnDeadline) {
  workers(pair);
  step(closed(net::PauseMode::kWait));
  arrive({.timeout = seconds(5)});
  EXPECT_EQ(sleep(seconds(5)), Words{"refuse 504"});
  expect_idle();
}

TEST_F(RouterTest, WhatWaitsIsBoundedByQueueMax) {
  config.queue_max = 1;
  workers(pair);
  step(closed(net::PauseMode::kWait));
  arrive();
  EXPECT_EQ(step(RequestArrived{RequestId{8}, {}}), Words{"refuse 503"});
}

TEST_F(RouterTest, AProbePassesClosedAdmission) {
  workers(pair);
  step(closed(net::PauseMode::kWait));
  EXPECT_EQ(arrive({.pin_prefill = "p0", .pin_decode = "d0", .probes = true}),
            (Words{"prefill#1@p0 offer", "decode#1@d0 fetch"}));
  EXPECT_EQ(router().requests_running(), 0U);
}

// Found by the simulation (rollout, seed 59): a paused fleet with a full router stayed closed for
// ever, because its router refused the probes of workers with new weights.
TEST_F(RouterTest, AFullRouterRefusesRequestsAndLetsProbesIn) {
  config.requests_max = 1;
  workers(pair);
  step(closed(net::PauseMode::kWait));
  arrive();
  EXPECT_EQ(step(RequestArrived{RequestId{8}, {}}), Words{"refuse 503"});
  EXPECT_EQ(
      step(RequestArrived{RequestId{9}, {.pin_prefill = "p0", .pin_decode = "d0", .probes = true}}),
      (Words{"prefill#1@p0 offer", "decode#1@d0 fetch"}));
}

TEST_F(RouterTest, WithWaitRunningRequestsFinishAndThenTheRouterIsQuiet) {
  workers(pair);
  arrive();
  EXPECT_EQ(step(closed(net::PauseMode::kWait)), Words{});
  EXPECT_EQ(router().requests_running(), 1U);
  answered(Stage::kPrefill, 200);
  ended(Stage::kPrefill);
  answered(Stage::kDecode, 200);
  EXPECT_EQ(ended(Stage::kDecode), (Words{"complete", "quiet"}));
}

TEST_F(RouterTest, WithAbortWorkersEndWhatRunsAndNoPrefillIsWaitedFor) {
  workers(pair);
  arrive();
  EXPECT_EQ(step(closed(net::PauseMode::kAbort)), Words{"abort running"});
  EXPECT_EQ(answered(Stage::kDecode, 200), Words{"relay decode#1"});
  EXPECT_EQ(ended(Stage::kDecode), (Words{"complete", "cancel prefill#1", "release @p0", "quiet"}));
  expect_idle();
}

TEST_F(RouterTest, WithRetractARequestWithoutAReplyStartsAnewAfterThePause) {
  workers(pair);
  arrive();
  EXPECT_EQ(step(closed(net::PauseMode::kRetract)),
            (Words{"cancel prefill#1", "release @p0", "cancel decode#1", "quiet"}));
  EXPECT_EQ(step(kOpen), (Words{"prefill#2@p0 offer", "decode#2@d0 fetch"}));
  answered(Stage::kDecode, 200, 2);
  ended(Stage::kPrefill, 2);
  EXPECT_EQ(ended(Stage::kDecode, 2), Words{"complete"});
  expect_idle();
}

TEST_F(RouterTest, WithRetractAStreamContinuesAfterThePause) {
  workers(pair);
  arrive();
  answered(Stage::kDecode, 200);
  ended(Stage::kPrefill);
  EXPECT_EQ(step(closed(net::PauseMode::kRetract)), Words{"take off"});
  EXPECT_EQ(router().requests_running(), 1U);
  EXPECT_EQ(step(LegTakenOff{leg(Stage::kDecode)}), Words{"quiet"});
  EXPECT_EQ(step(kOpen), (Words{"prefill#2@p0 offer", "decode#2@d0 fetch resume"}));
  EXPECT_EQ(answered(Stage::kDecode, 200, 2), Words{"relay decode#2"});
  ended(Stage::kPrefill, 2);
  EXPECT_EQ(ended(Stage::kDecode, 2), Words{"complete"});
  expect_idle();
}

TEST_F(RouterTest, RetractedRequestsAreNotRefusedForAFullQueue) {
  config.queue_max = 0;
  workers(pair);
  arrive();
  step(closed(net::PauseMode::kRetract));
  EXPECT_EQ(router().requests_queued(), 1U);
}

TEST_F(RouterTest, NewWeightsArriveAsOtherWorkersWhileRequestsWait) {
  workers(pair);
  step(closed(net::PauseMode::kRetract));
  arrive();
  std::vector<net::WorkerEntry> others = pair;
  for (net::WorkerEntry& other : others) {
    other.engine_id = "e2";
  }
  EXPECT_EQ(workers(others), Words{});
  EXPECT_EQ(step(kOpen), (Words{"prefill#1@p0 offer", "decode#1@d0 fetch"}));
}

TEST_F(RouterTest, ARouterThatStopsWhilePausedRefusesWhatWaits) {
  workers(pair);
  step(closed(net::PauseMode::kWait));
  arrive();
  EXPECT_EQ(step(DrainRequested{}), (Words{"refuse 503", "drained"}));
}

}  // namespace
}  // namespace pdjob::router
