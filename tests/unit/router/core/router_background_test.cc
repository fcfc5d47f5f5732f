// Requests in the background at the router: they come after all others, and nothing is judged by
// them.
#include <optional>
#include <utility>

#include "tests/unit/router/core/router_fixture.h"

namespace pdjob::router {
namespace {

struct BackgroundTest : RouterTest {
  Words arrive_as(uint64_t id, RequestFacts facts) {
    facts.prompt_tokens = 100;
    return step(RequestArrived{RequestId{id}, std::move(facts)});
  }
  Words behind(uint64_t id) { return arrive_as(id, {.background = true}); }
  Words other(uint64_t id) { return arrive_as(id, {.priority = 1}); }
  const Worker& worker(const char* name) { return *router().workers().find(name); }
  std::string started() {
    const StartLeg& last = starts.back();
    return std::to_string(last.leg.request.value) + "@" +
           router().workers().find(last.worker)->entry.name;
  }
};

TEST_F(BackgroundTest, TakesNoRoomFromOthers) {
  config.prefill_in_flight = 1;
  workers(pair);
  behind(1);
  EXPECT_EQ(started(), "1@d0");
  other(2);
  EXPECT_EQ(started(), "2@d0");
  EXPECT_EQ(behind(3), Words{});  // It waits for room that nobody has.
  EXPECT_EQ(router().background().alive, 2U);
  EXPECT_EQ(router().background().queued, 1U);
}

TEST_F(BackgroundTest, IsNoLoadForTheChoiceOfOthers) {
  config.decode_policy = PolicyKind::kLeastLoaded;
  config.prefill_policy = PolicyKind::kLeastLoaded;
  workers(two_pairs);
  behind(1);
  behind(2);
  EXPECT_EQ(worker("d0").background_in_flight, 1U);  // They know of each other.
  EXPECT_EQ(worker("d1").background_in_flight, 1U);
  EXPECT_EQ(worker("d0").load() + worker("d1").load(), 0U);
  EXPECT_EQ(worker("d0").requests() + worker("p0").requests(), 0U);
}

TEST_F(BackgroundTest, IsLoadAtAnEngineThatLetsNobodyWaitAndGetsFew) {
  workers(foreign);
  for (uint64_t id = 1; id <= 20; ++id) {
    behind(id);
  }
  EXPECT_EQ(worker("p0").requests_in_flight, 8U);
  EXPECT_EQ(router().background().queued, 12U);
  other(21);
  EXPECT_EQ(worker("p0").requests_in_flight, 9U);
}

TEST_F(BackgroundTest, IsNoLoadAtAnEngineThatLetsItWaitByPriority) {
  auto by_priority = foreign;
  for (net::WorkerEntry& each : by_priority) {
    each.background_priority = 1;
  }
  workers(by_priority);
  for (uint64_t id = 1; id <= 70; ++id) {
    behind(id);
  }
  EXPECT_EQ(worker("p0").background_in_flight, 64U);
  EXPECT_EQ(worker("p0").requests_in_flight, 0U);
  EXPECT_EQ(router().background().queued, 6U);
  other(71);
  EXPECT_EQ(worker("p0").requests_in_flight, 1U);
}

TEST_F(BackgroundTest, ARefusalForOverloadIsNoReasonForOthersToAvoidTheWorker) {
  workers(pair);
  behind(kRequest.value);
  answered(Stage::kDecode, 503, 1, true);
  EXPECT_EQ(worker("d0").overloads, 0U);
  EXPECT_EQ(worker("d0").busy_until, Instant{});
}

TEST_F(BackgroundTest, IsNotHedged) {
  config.hedge_quantile = 0.5;
  workers(two_pairs);
  for (uint64_t id = 100; id < 140; ++id) {  // Their pace is known.
    other(id);
    now += milliseconds(10);
    const uint32_t attempt = starts.back().leg.attempt;
    step(LegEnded{{RequestId{id}, attempt, Stage::kPrefill}});
    step(LegAnswered{{RequestId{id}, attempt, Stage::kDecode}, 200});
    step(LegEnded{{RequestId{id}, attempt, Stage::kDecode}});
  }
  behind(kRequest.value);
  EXPECT_EQ(sleep(seconds(5)), Words{});
  ended(Stage::kPrefill);
  answered(Stage::kDecode, 200);
  ended(Stage::kDecode);
  expect_idle();
  EXPECT_EQ(worker("d0").background_in_flight + worker("d1").background_in_flight, 0U);
  EXPECT_EQ(worker("p0").background_tokens + worker("p1").background_tokens, 0U);
}

}  // namespace
}  // namespace pdjob::router
