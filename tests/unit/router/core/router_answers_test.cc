// What workers' answers mean: a test for each line of the table in docs/explanation/faults.md.
#include <cstdlib>
#include <deque>
#include <optional>
#include <set>
#include <string>

#include "tests/unit/router/core/router_fixture.h"

namespace pdjob::router {
namespace {

const std::vector<net::WorkerEntry> two_alone = {entry("b0", net::Role::kBoth),
                                                 entry("b1", net::Role::kBoth)};

struct RouterAnswersTest : RouterTest {
  const Worker& worker(const std::string& name) { return *router().workers().find(name); }
  // Sends the request elsewhere, where it is answered well.
  void serve_at_second() {
    EXPECT_EQ(answered(Stage::kDecode, 200, 2).back(), "relay decode#2");
    EXPECT_EQ(ended(Stage::kDecode, 2), Words{"complete"});
    expect_idle();
  }
};

TEST_F(RouterAnswersTest, AKeyThatAWorkerRefusesIsTheOperatorsFault) {
  for (const int status : {401, 403, 407}) {
    made.reset();
    workers(two_alone);
    arrive();
    EXPECT_EQ(answered(Stage::kDecode, status),
              (Words{"avoid", "cancel decode#1", "retry failed", "decode#2@b1"}));
    EXPECT_EQ(worker("b0").bad_status, status);
    serve_at_second();
  }
}

TEST_F(RouterAnswersTest, AClientNeverSeesThatTheRoutersKeyIsRefused) {
  workers({two_alone[0]});
  arrive();
  EXPECT_EQ(answered(Stage::kDecode, 401), (Words{"avoid", "cancel decode#1", "refuse 503"}));
  EXPECT_NE(refusal.error.message.find("it answered 401: it refuses the key"), std::string::npos);
  EXPECT_GT(refusal.retry_after_seconds, 0U);
  expect_idle();
}

TEST_F(RouterAnswersTest, AClientsOwnKeyIsJudgedByAllWorkers) {
  for (const int status : {401, 403}) {
    made.reset();
    workers(two_alone);
    arrive();
    EXPECT_EQ(refused_for_clients_key(Stage::kDecode, status),
              (Words{"cancel decode#1", "retry failed", "decode#2@b1"}));
    EXPECT_EQ(refused_for_clients_key(Stage::kDecode, status, 2), Words{"relay decode#2"});
    EXPECT_EQ(ended(Stage::kDecode, 2), Words{"complete"});
    EXPECT_EQ(worker("b0").failures + worker("b1").failures, 0U);
    expect_idle();
  }
}

TEST_F(RouterAnswersTest, AWorkerThatRefusesAKeyWhichAnotherOneTakesIsAtFault) {
  workers(two_alone);
  arrive();
  refused_for_clients_key(Stage::kDecode, 401);
  EXPECT_EQ(answered(Stage::kDecode, 200, 2), (Words{"avoid", "relay decode#2"}));
  EXPECT_EQ(worker("b0").bad_status, 401);
}

TEST_F(RouterAnswersTest, AWorkerThatSendsClientsElsewhereHasAWrongAddress) {
  workers(two_alone);
  arrive();
  EXPECT_EQ(answered(Stage::kDecode, 302),
            (Words{"avoid", "cancel decode#1", "retry failed", "decode#2@b1"}));
  serve_at_second();
}

TEST_F(RouterAnswersTest, WhatOneWorkerLacksAnotherOneIsAskedFor) {
  for (const int status : {404, 405, 501}) {
    made.reset();
    workers(two_alone);
    arrive();
    EXPECT_EQ(answered(Stage::kDecode, status),
              (Words{"cancel decode#1", "retry failed", "decode#2@b1"}));
    EXPECT_EQ(worker("b0").failures, 0U) << "it may serve everything else";
    serve_at_second();
  }
}

TEST_F(RouterAnswersTest, WhatAllWorkersLackTheClientIsTold) {
  workers(two_alone);
  arrive();
  answered(Stage::kDecode, 404);
  EXPECT_EQ(answered(Stage::kDecode, 404, 2), Words{"relay decode#2"});
}

TEST_F(RouterAnswersTest, ABadRequestIsTheClientsFault) {
  for (const int status : {400, 409, 413, 422}) {
    made.reset();
    workers(two_alone);
    arrive();
    EXPECT_EQ(answered(Stage::kDecode, status), Words{"relay decode#1"});
    EXPECT_EQ(worker("b0").failures, 0U);
  }
}

TEST_F(RouterAnswersTest, AnOverloadedWorkerIsPassedOverForMoments) {
  for (const int status : {429, 503}) {
    made.reset();
    workers(two_alone);
    arrive();
    EXPECT_EQ(answered(Stage::kDecode, status, 1, true),
              (Words{"cancel decode#1", "retry overloaded", "decode#2@b1"}));
    EXPECT_EQ(worker("b0").failures, 0U) << "it is healthy";
    EXPECT_EQ(step(RequestArrived{RequestId{8}, {}}), Words{"decode#1@b1"}) << "b0 has less to do";
    now += WorkerTable::kBackoffFirst;
    EXPECT_EQ(step(RequestArrived{RequestId{9}, {}}), Words{"decode#1@b0"});
  }
}

TEST_F(RouterAnswersTest, AWorkerThatFailsIsAvoidedOnceAnotherOneServesTheRequest) {
  for (const int status : {500, 502, 503, 504}) {
    made.reset();
    workers(two_alone);
    arrive();
    EXPECT_EQ(answered(Stage::kDecode, status),
              (Words{"cancel decode#1", "retry failed", "decode#2@b1"}));
    EXPECT_EQ(answered(Stage::kDecode, 200, 2), (Words{"avoid", "relay decode#2"}));
    EXPECT_EQ(worker("b0").bad_status, status);
  }
}

TEST_F(RouterAnswersTest, APrefillWorkerWhoseHandOverFailsIsAvoidedIfAnotherOneSucceeds) {
  workers(two_pairs);
  arrive();
  answered(Stage::kDecode, 502);
  EXPECT_EQ(answered(Stage::kDecode, 200, 2), (Words{"avoid", "relay decode#2"}));
  EXPECT_EQ(worker("p0").bad_status, 502);
  EXPECT_EQ(worker("d0").failures, 0U);
}

TEST_F(RouterAnswersTest, ADecodeWorkerThatFailsWithTwoPrefillWorkersIsToBlameAlone) {
  workers(two_pairs);
  arrive();
  answered(Stage::kDecode, 502);
  EXPECT_EQ(answered(Stage::kDecode, 502, 2),
            (Words{"cancel prefill#2", "release @p1", "cancel decode#2", "retry failed",
                   "prefill#3@p0 offer", "decode#3@d1 fetch"}));
  EXPECT_EQ(answered(Stage::kDecode, 200, 3), (Words{"avoid", "relay decode#3"}));
  EXPECT_EQ(worker("d0").bad_status, 502);
  EXPECT_EQ(worker("p0").failures + worker("p1").failures, 0U);
}

// --- a pair whose hand-overs go on failing

struct FailingPairTest : RouterAnswersTest {
  // Whether a request was sent to p0 and d0. There it fails, and p1 answers it well.
  bool fails_at_first_pair(int status = 502) {
    const Words sent = arrive();
    const bool there = sent.at(0) == "prefill#1@p0 offer";
    if (there) {
      answered(Stage::kDecode, status);
    }
    const uint32_t attempt = there ? 2 : 1;
    ended(Stage::kPrefill, attempt);
    answered(Stage::kDecode, 200, attempt);
    const Words words = ended(Stage::kDecode, attempt);
    suspected_times += std::ranges::count(words, "suspect");
    return there;
  }
  // The pair is tried so often in this time.
  int tries(Duration duration, int status = 502) {
    int count = 0;
    for (const Instant end = now + duration; now < end; now += seconds(1)) {
      count += fails_at_first_pair(status) ? 1 : 0;
    }
    return count;
  }
  int64_t suspected_times = 0;
  const std::vector<net::WorkerEntry> two_prefill = {two_pairs[0], two_pairs[1], two_pairs[2]};
};

TEST_F(FailingPairTest, OneThatFailsForThirtySecondsIsAvoidedAndItsFaultLasts) {
  for (const int status : {500, 502}) {
    made.reset();
    suspected_times = 0;
    workers(two_prefill);
    EXPECT_GT(tries(PairSuspicions::kLastsAfter, status), 2) << status;
    EXPECT_TRUE(router().suspicions().pairs(now).empty());
    EXPECT_GT(tries(seconds(10), status), 0);
    EXPECT_EQ(suspected_times, 1);
    const auto pairs = router().suspicions().pairs(now);
    ASSERT_EQ(pairs.size(), 1U);
    EXPECT_TRUE(pairs[0].lasts);
    EXPECT_EQ(pairs[0].fault, PairFault::kFailed);
    EXPECT_EQ(tries(seconds(15), status), 0);
    EXPECT_EQ(tries(PairSuspicions::kAvoidedFor, status), 1) << "it is tried once more";
    EXPECT_TRUE(router().suspicions().pairs(now).at(0).lasts);
  }
}

TEST_F(FailingPairTest, OneGoodAnswerEndsTheSeries) {
  workers(two_prefill);
  tries(PairSuspicions::kLastsAfter - seconds(1));
  arrive({.pin_prefill = "p0", .pin_decode = "d0"});
  ended(Stage::kPrefill);
  answered(Stage::kDecode, 200);
  EXPECT_FALSE(router().suspicions().empty()) << "its head says nothing yet";
  ended(Stage::kDecode);
  EXPECT_TRUE(router().suspicions().empty());
  EXPECT_GT(tries(PairSuspicions::kLastsAfter - seconds(1)), 2);
  EXPECT_TRUE(router().suspicions().pairs(now).empty());
}

TEST_F(FailingPairTest, AStreamWhoseEngineFailsBeforeItsFirstTokenCountsAndALaterOneDoesNot) {
  for (const bool before_tokens : {true, false}) {
    made.reset();
    workers(two_pairs);
    EXPECT_EQ(arrive(), (Words{"prefill#1@p0 offer", "decode#1@d0 fetch"}));
    answered(Stage::kDecode, 200);
    step(LegFailed{.leg = leg(Stage::kDecode),
                   .error = {ErrorCode::kUnavailable, "its engine failed"},
                   .resumable = true,
                   .before_tokens = before_tokens});
    ended(Stage::kPrefill, 2);
    answered(Stage::kDecode, 200, 2);
    EXPECT_TRUE(router().suspicions().empty());
    ended(Stage::kDecode, 2);
    EXPECT_EQ(router().suspicions().empty(), !before_tokens);
  }
}

TEST_F(FailingPairTest, ARequestThatNobodyAnswersWellAccusesNoPair) {
  workers(two_pairs);
  for (int i = 0; i < 60; ++i) {
    arrive();
    for (const uint32_t attempt : {1U, 2U, 3U}) {
      answered(Stage::kDecode, 500, attempt);
    }
    step(ClientLeft{kRequest});
    now += seconds(1);
  }
  EXPECT_TRUE(router().suspicions().empty());
}

TEST_F(RouterAnswersTest, AnAnsweredHealthCheckDoesNotClearAWorkerThatAnswersBadly) {
  workers(two_alone);
  arrive();
  answered(Stage::kDecode, 503);
  answered(Stage::kDecode, 200, 2);
  step(WorkerProbed{"b0", true});
  EXPECT_EQ(worker("b0").health(now), Health::kSuspect);
  failed(Stage::kDecode, 2);
  ASSERT_EQ(worker("b1").health(now), Health::kSuspect);
  step(WorkerProbed{"b1", true});
  EXPECT_EQ(worker("b1").health(now), Health::kHealthy) << "it was not reached";
}

TEST_F(RouterAnswersTest, AWorkerThatBreaksItsRepliesOffIsAvoidedLongerEachTime) {
  workers(two_alone);
  Duration before{};
  for (uint64_t i = 1; i <= 4; ++i) {
    const LegId first{RequestId{100 + i}, 1, Stage::kDecode};
    ASSERT_EQ(step(RequestArrived{first.request, {}}), Words{"decode#1@b0"});
    step(LegAnswered{first, 200});
    step(LegFailed{first, {ErrorCode::kUnavailable, "reset"}});
    const Duration avoided = worker("b0").retry_at - now;
    EXPECT_GT(avoided, before);
    before = avoided;
    now = worker("b0").retry_at;
  }
}

// --- no worker attracts requests by failing fast

// Requests come one after the other; `bad` workers answer every leg at once with `status`.
struct Clients {
  explicit Clients(const RouterConfig& config) : router(config, 1) {}

  void step(const RouterEvent& event) {
    std::vector<RouterEffect> effects;
    router.step(event, now, effects);
    for (const RouterEffect& effect : effects) {
      if (const auto* start = std::get_if<StartLeg>(&effect)) {
        legs.push_back(*start);
      } else if (const auto* cancel = std::get_if<CancelLeg>(&effect)) {
        std::erase_if(legs, [&](const StartLeg& leg) { return leg.leg == cancel->leg; });
      } else if (const auto* relay = std::get_if<Relay>(&effect)) {
        relayed = relay->leg;
      } else if (const auto* refused = std::get_if<Refuse>(&effect)) {
        seen = refused->error.status;
      }
    }
  }

  // The status that the client sees.
  int ask(uint64_t number) {
    seen.reset();
    relayed.reset();
    step(RequestArrived{RequestId{number}, {.prompt_tokens = 10, .session = number}});
    while (!legs.empty() || !seen) {
      if (legs.empty()) {
        now = std::max(now, router.next_wakeup());
        step(TimePassed{});
        continue;
      }
      const StartLeg leg = legs.front();
      legs.pop_front();
      const bool fails = bad.contains(router.workers().find(leg.worker)->entry.name);
      asked_bad += fails ? 1 : 0;
      step(LegAnswered{leg.leg, fails ? status : 200, fails && retry_after});
      if (relayed == leg.leg) {
        seen = fails ? status : 200;
      }
      if (!fails || relayed == leg.leg) {
        step(LegEnded{leg.leg, /*kv_params=*/true});
      }
    }
    now += milliseconds(20);
    return *seen;
  }

  Router router;
  Instant now{std::chrono::hours(1)};
  std::deque<StartLeg> legs;
  std::optional<LegId> relayed;
  std::optional<int> seen;
  std::set<std::string> bad;
  int status = 0;
  bool retry_after = false;
  int asked_bad = 0;
};

constexpr PolicyKind kPolicies[] = {PolicyKind::kRoundRobin,     PolicyKind::kLeastLoaded,
                                    PolicyKind::kPowerOfTwo,     PolicyKind::kRandom,
                                    PolicyKind::kConsistentHash, PolicyKind::kPrefixAware};

constexpr int kRequests = 200;  // In 4 s.

void expect_no_black_hole(PolicyKind policy, const std::vector<net::WorkerEntry>& all,
                          const std::set<std::string>& bad, int served_at_least) {
  for (const int status : {302, 401, 403, 404, 429, 500, 502, 503, -503, 504}) {
    RouterConfig config;
    config.attempts = 3;
    config.prefill_policy = config.decode_policy = policy;
    Clients clients(config);
    clients.bad = bad;
    clients.status = std::abs(status);
    clients.retry_after = status < 0 || status == 429;
    clients.step(WorkersChanged{all});
    int served = 0;
    for (int i = 1; i <= kRequests; ++i) {
      served += clients.ask(static_cast<uint64_t>(i)) == 200 ? 1 : 0;
    }
    EXPECT_GE(served, served_at_least) << static_cast<int>(policy) << ' ' << status;
    EXPECT_LE(clients.asked_bad, 20 * static_cast<int>(bad.size()))
        << static_cast<int>(policy) << ' ' << status;
  }
}

TEST(RouterBlackHole, AWorkerThatFailsFastAttractsNobodyWhateverThePolicy) {
  for (const PolicyKind policy : kPolicies) {
    expect_no_black_hole(policy, two_alone, {"b0"}, kRequests);
  }
}

TEST(RouterBlackHole, APrefillOrDecodeWorkerThatFailsFastAttractsNobody) {
  for (const char* address : {"{}", ""}) {
    const std::vector<net::WorkerEntry> all = {
        entry("p0", net::Role::kPrefill, address), entry("p1", net::Role::kPrefill, address),
        entry("d0", net::Role::kDecode, address), entry("d1", net::Role::kDecode, address)};
    expect_no_black_hole(PolicyKind::kLeastLoaded, all, {"p0"}, kRequests);
    expect_no_black_hole(PolicyKind::kLeastLoaded, all, {"d0"}, kRequests);
  }
}

TEST(RouterBlackHole, WhereMostWorkersFailTheOthersAreFound) {
  expect_no_black_hole(PolicyKind::kLeastLoaded,
                       {two_alone[0], two_alone[1], entry("b2", net::Role::kBoth),
                        entry("b3", net::Role::kBoth), entry("b4", net::Role::kBoth)},
                       {"b0", "b1", "b2", "b3"}, kRequests - 10);
}

}  // namespace
}  // namespace pdjob::router
