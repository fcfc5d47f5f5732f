#include "worker/batching/request_queue.h"

#include <gtest/gtest.h>

#include "tests/support/worker_words.h"

namespace pdjob::worker {
namespace {

using std::chrono::seconds;

struct RequestQueueTest : testing::Test {
  Words push(uint64_t request, Instant deadline = kNever) {
    effects.clear();
    queue.push({.request = RequestId{request}, .prompt_tokens = 10, .deadline = deadline}, effects);
    return words(effects);
  }
  Words expire(Instant now) {
    effects.clear();
    queue.expire(now, effects);
    return words(effects);
  }
  std::string error() const { return std::get<FailRequest>(effects.front()).error.message; }

  RequestQueue queue{"decode worker", 2};
  std::vector<Effect> effects;
  const Instant start{std::chrono::hours(1)};
};

TEST_F(RequestQueueTest, KeepsTheOrderOfArrival) {
  EXPECT_EQ(push(1), Words{});
  EXPECT_EQ(push(2), Words{});
  EXPECT_EQ(queue.waiting().front().request, RequestId{1});
  queue.take(RequestId{1});
  EXPECT_EQ(queue.waiting().front().request, RequestId{2});
  EXPECT_EQ(queue.prompt_tokens(), 10U);
}

TEST_F(RequestQueueTest, GivesWhoeverIsChosen) {
  push(1);
  push(2);
  EXPECT_EQ(queue.take(RequestId{2}).request, RequestId{2});
  EXPECT_EQ(queue.waiting().front().request, RequestId{1});
  EXPECT_EQ(queue.size(), 1U);
}

TEST_F(RequestQueueTest, RemembersWhoIsAwaited) {
  push(1);
  queue.set_awaited(RequestId{1}, true);
  EXPECT_TRUE(queue.waiting().front().awaited);
  queue.set_awaited(RequestId{1}, false);
  EXPECT_FALSE(queue.waiting().front().awaited);
  queue.set_awaited(RequestId{9}, true);  // It is not in the queue, so nothing happens.
}

TEST_F(RequestQueueTest, RefusesBeyondItsBound) {
  push(1);
  push(2);
  EXPECT_EQ(push(3), (Words{"fail r3 overloaded", "end r3"}));
  EXPECT_EQ(error(), "this decode worker's queue is full");
  EXPECT_EQ(queue.size(), 2U);
}

TEST_F(RequestQueueTest, RefusesEverythingOnceClosedButKeepsWhatWaits) {
  push(1);
  queue.close();
  EXPECT_EQ(push(2), (Words{"fail r2 unavailable", "end r2"}));
  EXPECT_EQ(queue.size(), 1U);
}

TEST_F(RequestQueueTest, FailsExactlyWhatIsPastItsDeadline) {
  push(1, start + seconds(2));
  push(2, start + seconds(1));
  EXPECT_EQ(queue.next_wakeup(), start + seconds(1));
  EXPECT_EQ(expire(start), Words{});
  EXPECT_EQ(expire(start + seconds(1)), (Words{"fail r2 timeout", "end r2"}));
  EXPECT_EQ(queue.next_wakeup(), start + seconds(2));
}

TEST_F(RequestQueueTest, HasNoDeadlineWhenEmpty) { EXPECT_EQ(queue.next_wakeup(), kNever); }

TEST_F(RequestQueueTest, CancelsOnlyWhatWaitsHere) {
  push(1);
  effects.clear();
  EXPECT_FALSE(queue.cancel(RequestId{2}, effects));
  EXPECT_TRUE(queue.cancel(RequestId{1}, effects));
  EXPECT_EQ(words(effects), Words{"end r1"});
  EXPECT_TRUE(queue.empty());
  EXPECT_FALSE(queue.cancel(RequestId{1}, effects));
}

TEST_F(RequestQueueTest, OneThatGaveWayComesFirstOfTheBackgroundEvenIfTheQueueIsFullOrClosed) {
  queue.push({.request = RequestId{5}, .prompt_tokens = 10, .background = true}, effects);
  push(6);
  queue.close();
  queue.put_back(
      {.request = RequestId{2}, .prompt_tokens = 10, .deadline = start, .background = true});
  std::vector<uint64_t> order;
  for (const RequestArrived* each : queue.in_turn({})) {
    order.push_back(each->request.value);
  }
  EXPECT_EQ(order, (std::vector<uint64_t>{6, 2, 5}));
  EXPECT_EQ(expire(start + seconds(1)), Words{});  // Its client has the beginning of the reply.
  EXPECT_EQ(queue.in_background(), 2U);
  EXPECT_EQ(queue.prompt_tokens(), 10U);
}

}  // namespace
}  // namespace pdjob::worker
