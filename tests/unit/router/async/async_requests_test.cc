#include "router/async/async_requests.h"

#include <string>

#include <gtest/gtest.h>

namespace pdjob::router {
namespace {

using State = AsyncRequests::State;

const auto kAll = [](const std::string&) { return true; };

TEST(AsyncRequests, RunInOrderOfArrivalSoManyAtOnce) {
  AsyncRequests requests({.in_flight_max = 2});
  for (const char* id : {"a", "b", "c"}) {
    ASSERT_TRUE(requests.submit(id, "t"));
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
  EXPECT_TRUE(requests.submit("a", ""));
  EXPECT_TRUE(requests.submit("b", ""));
  EXPECT_FALSE(requests.submit("c", ""));
  requests.end("a");
  EXPECT_TRUE(requests.submit("c", ""));
  requests.enqueue("stored before", "");
  EXPECT_EQ(requests.alive(), 3U);
}

TEST(AsyncRequests, OfOneOfSeveralTenantsLeaveAsMuchRoomAsTheyTake) {
  AsyncRequests requests({.queue_max = 100}, /*several_tenants=*/true);
  const auto submitted = [&](const std::string& tenant) {
    int count = 0;
    while (requests.submit(tenant + std::to_string(count), tenant)) {
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
  EXPECT_FALSE(requests.submit("greedy again", "greedy"));
  EXPECT_TRUE(requests.submit("third again", "third"));
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
  const auto but_a = [](const std::string& model) { return model != "model a"; };
  for (const char* id : {"a1", "a2", "gone"}) {
    EXPECT_EQ(requests.start_next(but_a), id);
    requests.hold(id, "model a");
    EXPECT_EQ(requests.state(id, "t"), State::kQueued);
  }
  requests.end("gone");
  EXPECT_EQ(requests.start_next(but_a), "b");
  EXPECT_EQ(requests.start_next(kAll), std::nullopt) << "one runs";
  requests.end("b");
  EXPECT_EQ(requests.start_next(kAll), "a1");
  requests.end("a1");
  EXPECT_EQ(requests.start_next(kAll), "a2");
  requests.end("a2");
  EXPECT_FALSE(requests.holds_some());
  EXPECT_EQ(requests.start_next(kAll), "c");
  EXPECT_EQ(requests.running(), 1U);
}

TEST(AsyncRequests, LeaveNothingBehindWhenTheyWereCancelled) {
  AsyncRequests requests({.queue_max = 2, .in_flight_max = 1});
  requests.enqueue("runs", "");
  ASSERT_EQ(requests.start_next(kAll), "runs");
  for (int i = 0; i < 10; ++i) {
    const std::string id = std::to_string(i);
    ASSERT_TRUE(requests.submit(id, ""));
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
  ASSERT_NE(requests.tenant_of("a"), nullptr);
  EXPECT_EQ(*requests.tenant_of("a"), "t");
  EXPECT_EQ(requests.tenant_of("b"), nullptr);
}

}  // namespace
}  // namespace pdjob::router
