#include "router/async/async_requests.h"

#include <string>

#include <gtest/gtest.h>

namespace pdjob::router {
namespace {

using State = AsyncRequests::State;
using Verdict = AsyncRequests::Verdict;

AsyncRequests::Outside all_but(const std::string& model) {
  return {.serves = [model](const std::string& asked) { return asked != model; }};
}
const AsyncRequests::Outside kAll = all_but("none");
const AsyncRequests::Outside kNobody{.usable = false};
const AsyncRequests::Outside kSlowDisk{.store_full = true};
const AsyncRequests::Stored kValid{.model = "m"};
constexpr Instant kNow = Instant{} + std::chrono::hours(1);

TEST(AsyncRequests, RunInOrderOfArrivalSoManyAtOnce) {
  AsyncRequests requests({.in_flight_max = 2});
  for (const char* id : {"a", "b", "c"}) {
    ASSERT_TRUE(requests.submit(id, "t", kAll));
    EXPECT_EQ(requests.state(id, "t"), State::kStoring);
    EXPECT_EQ(requests.start_next(kAll), std::nullopt) << "it is not stored yet";
  }
  for (const char* id : {"b", "a", "c"}) {
    requests.enqueue(id, "t");
  }
  EXPECT_EQ(requests.start_next(kAll), "b");
  EXPECT_EQ(requests.start_next(kAll), "a");
  EXPECT_EQ(requests.start_next(kAll), std::nullopt);
  EXPECT_EQ(requests.state("a", "t"), State::kRunning);
  EXPECT_EQ(requests.state("c", "t"), State::kQueued);
  requests.end("b");
  EXPECT_EQ(requests.state("b", "t"), std::nullopt);
  EXPECT_EQ(requests.start_next(kAll), "c");
  EXPECT_EQ(requests.running(), 2U);
  EXPECT_EQ(requests.alive(), 2U);
}

TEST(AsyncRequests, AreNoMoreThanTheQueueHolds) {
  AsyncRequests requests({.queue_max = 2});
  EXPECT_TRUE(requests.submit("a", "", kAll));
  EXPECT_TRUE(requests.submit("b", "", kAll));
  EXPECT_FALSE(requests.submit("c", "", kAll));
  requests.end("a");
  EXPECT_TRUE(requests.submit("c", "", kAll));
  requests.enqueue("stored before", "");
  EXPECT_EQ(requests.alive(), 3U);
}

TEST(AsyncRequests, OfOneOfSeveralTenantsLeaveAsMuchRoomAsTheyTake) {
  AsyncRequests requests({.queue_max = 100}, /*several_tenants=*/true);
  const auto submitted = [&](const std::string& tenant) {
    int count = 0;
    while (requests.submit(tenant + std::to_string(count), tenant, kAll)) {
      ++count;
    }
    return count;
  };
  EXPECT_EQ(submitted("greedy"), 50);
  EXPECT_EQ(submitted("second"), 25);
  EXPECT_EQ(submitted("third"), 13);
  for (int i = 0; i < 10; ++i) {
    requests.end("greedy" + std::to_string(i));
  }
  EXPECT_FALSE(requests.submit("greedy again", "greedy", kAll));
  EXPECT_TRUE(requests.submit("third again", "third", kAll));
}

TEST(AsyncRequests, OfSeveralTenantsRunInTurns) {
  AsyncRequests requests({.in_flight_max = 1}, /*several_tenants=*/true);
  for (const char* id : {"a1", "a2", "a3", "b1", "c1", "b2"}) {
    requests.enqueue(id, std::string(1, id[0]));
  }
  EXPECT_EQ(requests.queued(), 6U);
  std::string order;
  while (const auto next = requests.start_next(kAll)) {
    order += *next + " ";
    requests.end(*next);
  }
  EXPECT_EQ(order, "a1 b1 c1 a2 b2 a3 ");
  EXPECT_EQ(requests.alive(), 0U);
}

TEST(AsyncRequests, DoNotRunWhenTheyWereCancelled) {
  AsyncRequests requests({.in_flight_max = 1});
  requests.enqueue("a", "");
  requests.enqueue("b", "");
  requests.end("a");
  EXPECT_EQ(requests.start_next(kAll), "b");
  requests.end("b");
  requests.end("b");
  EXPECT_EQ(requests.running(), 0U);
  EXPECT_EQ(requests.start_next(kAll), std::nullopt);
}

TEST(AsyncRequests, OfAModelThatNobodyServesHoldUpNoOthers) {
  AsyncRequests requests({.in_flight_max = 1});
  for (const char* id : {"a1", "a2", "gone", "b", "c"}) {
    requests.enqueue(id, "t");
  }
  const auto but_a = all_but("model a");
  const AsyncRequests::Stored model_a{.model = "model a"};
  for (const char* id : {"a1", "a2", "gone"}) {
    EXPECT_EQ(requests.start_next(but_a), id);
    EXPECT_EQ(requests.decide(id, model_a, but_a), Verdict::kHeld);
    EXPECT_EQ(requests.state(id, "t"), State::kQueued);
  }
  requests.end("gone");
  EXPECT_EQ(requests.start_next(but_a), "b");
  EXPECT_EQ(requests.decide("b", kValid, but_a), Verdict::kRun);
  EXPECT_EQ(requests.start_next(kAll), std::nullopt) << "one runs";
  EXPECT_EQ(requests.next_try(kAll, kNow), kNow + AsyncRequests::kPatience);
  requests.end("b");
  EXPECT_EQ(requests.start_next(kAll), "a1");
  EXPECT_EQ(requests.decide("a1", model_a, kAll), Verdict::kRun);
  requests.end("a1");
  EXPECT_EQ(requests.start_next(kAll), "a2");
  requests.end("a2");
  EXPECT_EQ(requests.next_try(kAll, kNow), kNever) << "none is held";
  EXPECT_EQ(requests.start_next(kAll), "c");
  EXPECT_EQ(requests.running(), 1U);
}

TEST(AsyncRequests, WaitForWorkersAndForTheDisk) {
  AsyncRequests requests({});
  EXPECT_EQ(requests.next_try(kNobody, kNow), kNever) << "there are no requests";
  EXPECT_FALSE(requests.submit("a", "", kSlowDisk));
  ASSERT_TRUE(requests.submit("a", "", kNobody));
  requests.enqueue("a", "");
  for (const AsyncRequests::Outside& outside : {kNobody, kSlowDisk}) {
    EXPECT_EQ(requests.start_next(outside), std::nullopt);
    EXPECT_EQ(requests.next_try(outside, kNow), kNow + AsyncRequests::kPatience);
  }
  EXPECT_EQ(requests.start_next(kAll), "a");
  EXPECT_EQ(requests.next_try(kAll, kNow), kNever);
}

TEST(AsyncRequests, ThatCannotBeReadOrWereCancelledAreDropped) {
  AsyncRequests requests({});
  requests.enqueue("unreadable", "");
  requests.enqueue("cancelled", "");
  ASSERT_EQ(requests.start_next(kAll), "unreadable");
  ASSERT_EQ(requests.start_next(kAll), "cancelled");
  EXPECT_EQ(requests.decide("unreadable", std::nullopt, kAll), Verdict::kDropped);
  requests.end("cancelled");
  EXPECT_EQ(requests.decide("cancelled", kValid, kAll), Verdict::kDropped);
  EXPECT_EQ(requests.alive(), 0U);
}

TEST(AsyncRequests, ThatCannotRunAreAnswered) {
  AsyncRequests requests({});
  requests.enqueue("a", "");
  ASSERT_EQ(requests.start_next(kAll), "a");
  EXPECT_EQ(requests.decide("a", AsyncRequests::Stored{.valid = false}, kAll), Verdict::kRefuse);
  EXPECT_EQ(requests.state("a", ""), State::kRunning) << "until its answer is stored";
}

TEST(AsyncRequests, ThatRunMayEndInADrainAndNoOthersStart) {
  AsyncRequests requests({});
  for (const char* id : {"runs", "is read", "waits"}) {
    requests.enqueue(id, "");
  }
  ASSERT_EQ(requests.start_next(kAll), "runs");
  ASSERT_EQ(requests.decide("runs", kValid, kAll), Verdict::kRun);
  ASSERT_EQ(requests.start_next(kAll), "is read");
  requests.drain();
  EXPECT_EQ(requests.decide("is read", kValid, kAll), Verdict::kDropped);
  EXPECT_EQ(requests.start_next(kAll), std::nullopt);
  EXPECT_EQ(requests.next_try(kNobody, kNow), kNever);
  EXPECT_FALSE(requests.submit("late", "", kAll));
  EXPECT_EQ(requests.running(), 1U);
  EXPECT_EQ(requests.state("waits", ""), State::kQueued);
}

TEST(AsyncRequests, LeaveNothingBehindWhenTheyWereCancelled) {
  AsyncRequests requests({.queue_max = 2, .in_flight_max = 1});
  requests.enqueue("runs", "");
  ASSERT_EQ(requests.start_next(kAll), "runs");
  for (int i = 0; i < 10; ++i) {
    const std::string id = std::to_string(i);
    ASSERT_TRUE(requests.submit(id, "", kAll));
    requests.enqueue(id, "");
    requests.end(id);
  }
  EXPECT_EQ(requests.queued(), 0U);
}

TEST(AsyncRequests, AreKnownToTheirTenantOnly) {
  AsyncRequests requests({});
  requests.enqueue("a", "t");
  EXPECT_EQ(requests.state("a", "u"), std::nullopt);
  EXPECT_EQ(requests.state("a", ""), std::nullopt);
  EXPECT_EQ(requests.state("a", "t"), State::kQueued);
}

}  // namespace
}  // namespace pdjob::router
