#include "router/async_requests.h"

#include <gtest/gtest.h>

namespace pdjob::router {
namespace {

using State = AsyncRequests::State;

TEST(AsyncRequests, RunInOrderOfArrivalSoManyAtOnce) {
  AsyncRequests requests({.in_flight_max = 2});
  for (const char* id : {"a", "b", "c"}) {
    ASSERT_TRUE(requests.submit(id, "t"));
    EXPECT_EQ(requests.state(id, "t"), State::kStoring);
    EXPECT_EQ(requests.start_next(), std::nullopt) << "it is not stored yet";
  }
  for (const char* id : {"b", "a", "c"}) {
    requests.enqueue(id, "t");
  }
  EXPECT_EQ(requests.start_next(), "b");
  EXPECT_EQ(requests.start_next(), "a");
  EXPECT_EQ(requests.start_next(), std::nullopt);
  EXPECT_EQ(requests.state("a", "t"), State::kRunning);
  EXPECT_EQ(requests.state("c", "t"), State::kQueued);
  requests.end("b");
  EXPECT_EQ(requests.state("b", "t"), std::nullopt);
  EXPECT_EQ(requests.start_next(), "c");
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

TEST(AsyncRequests, DoNotRunWhenTheyWereCancelled) {
  AsyncRequests requests({.in_flight_max = 1});
  requests.enqueue("a", "");
  requests.enqueue("b", "");
  requests.end("a");
  EXPECT_EQ(requests.start_next(), "b");
  requests.end("b");
  requests.end("b");
  EXPECT_EQ(requests.running(), 0U);
  EXPECT_EQ(requests.start_next(), std::nullopt);
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
