#include "router/async/async_callbacks.h"

#include <map>

#include <gtest/gtest.h>

namespace pdjob::router {
namespace {

using std::chrono::minutes;
using std::chrono::seconds;
using Outcome = AsyncCallbacks::Outcome;

constexpr Instant kStart{std::chrono::hours(1)};
constexpr size_t kMany = 1000;

CallbackConfig config_of(size_t receivers, uint32_t in_flight_max = 1, uint32_t attempts = 3) {
  return {.allowed = std::vector<std::string>(receivers, "x"),
          .attempts = attempts,
          .wait_max = seconds(60),
          .in_flight_max = in_flight_max};
}

TEST(AsyncCallbacks, AreMadeOnceWhenTheyAreTaken) {
  AsyncCallbacks calls(config_of(1), kMany, 1);
  calls.add("a", "t", 0, 0, kStart);
  EXPECT_EQ(calls.next_due(), kStart);
  EXPECT_FALSE(calls.start_next(kStart - seconds(1)));
  const auto call = calls.start_next(kStart);
  ASSERT_TRUE(call);
  EXPECT_EQ(call->id, "a");
  EXPECT_EQ(calls.running(), 1U);
  const auto ended = calls.end(call->number, true, kStart);
  EXPECT_EQ(ended.outcome, Outcome::kDelivered);
  EXPECT_EQ(ended.attempts, 1U);
  EXPECT_EQ(calls.next_due(), kNever);
  EXPECT_EQ(calls.waiting() + calls.running(), 0U);
}

TEST(AsyncCallbacks, AreMadeAgainAfterWaitsThatDouble) {
  AsyncCallbacks calls(config_of(1, 1, 10), kMany, 1);
  calls.add("a", "t", 0, 0, kStart);
  Instant now = kStart;
  Duration base = seconds(1);
  for (uint32_t attempt = 1; attempt < 10; ++attempt) {
    const auto call = calls.start_next(now);
    ASSERT_TRUE(call);
    const auto ended = calls.end(call->number, false, now);
    EXPECT_EQ(ended.outcome, Outcome::kAgain);
    EXPECT_EQ(ended.attempts, attempt);
    EXPECT_GE(ended.wait, base / 2);
    EXPECT_LE(ended.wait, base);
    EXPECT_EQ(calls.next_due(), now + ended.wait);
    now += ended.wait;
    base = std::min<Duration>(base * 2, seconds(60));
  }
  EXPECT_EQ(base, seconds(60));
  EXPECT_EQ(calls.end(calls.start_next(now)->number, false, now).outcome, Outcome::kFailed);
  EXPECT_EQ(calls.waiting() + calls.running(), 0U);
}

TEST(AsyncCallbacks, DoNotComeAgainTogether) {
  AsyncCallbacks calls(config_of(1, 16), kMany, 1);
  std::set<Duration> waits;
  for (const char* id : {"a", "b", "c", "d"}) {
    calls.add(id, "t", 0, 0, kStart);
    waits.insert(calls.end(calls.start_next(kStart)->number, false, kStart).wait);
  }
  EXPECT_EQ(waits.size(), 4U);
}

TEST(AsyncCallbacks, CountTheAttemptsOfEarlierRouters) {
  AsyncCallbacks calls(config_of(1, 1, 3), kMany, 1);
  calls.add("a", "t", 0, 2, kStart + minutes(5));
  EXPECT_EQ(calls.next_due(), kStart + minutes(5));
  const auto call = calls.start_next(kStart + minutes(5));
  const auto ended = calls.end(call->number, false, kStart + minutes(5));
  EXPECT_EQ(ended.outcome, Outcome::kFailed);
  EXPECT_EQ(ended.attempts, 3U);
}

TEST(AsyncCallbacks, ToOneReceiverDoNotWaitForThoseToAnother) {
  AsyncCallbacks calls(config_of(2, 2), kMany, 1);
  for (const char* id : {"a", "b", "c"}) {
    calls.add(id, "t", 0, 0, kStart);
  }
  EXPECT_TRUE(calls.start_next(kStart));
  EXPECT_TRUE(calls.start_next(kStart));
  EXPECT_FALSE(calls.start_next(kStart)) << "both hang";
  EXPECT_EQ(calls.next_due(), kNever) << "nothing can be begun until one ends";
  calls.add("d", "t", 1, 0, kStart);
  EXPECT_EQ(calls.next_due(), kStart);
  EXPECT_EQ(calls.start_next(kStart)->id, "d");
}

TEST(AsyncCallbacks, OfOneTenantPushOutNoneOfAnother) {
  AsyncCallbacks calls(config_of(1, 1), 2, 1);
  calls.add("hers", "alice", 0, 0, kStart);
  for (const char* id : {"a", "b", "c", "d"}) {
    calls.add(id, "mallory", 0, 0, kStart);
  }
  EXPECT_EQ(calls.waiting(), 3U);
  EXPECT_EQ(calls.start_next(kStart)->id, "hers");
}

TEST(AsyncCallbacks, ForgetTheOldestThatWaits) {
  AsyncCallbacks calls(config_of(1, 1), 2, 1);
  calls.add("runs", "t", 0, 0, kStart);
  const auto runs = calls.start_next(kStart);
  calls.add("oldest", "t", 0, 0, kStart);
  calls.add("b", "t", 0, 0, kStart);
  EXPECT_EQ(calls.waiting(), 2U) << "the one that runs was the oldest of the three";
  calls.add("c", "t", 0, 0, kStart);
  EXPECT_EQ(calls.waiting(), 2U);
  EXPECT_EQ(calls.end(runs->number, true, kStart).outcome, Outcome::kDelivered);
  for (const char* id : {"b", "c"}) {
    const auto next = calls.start_next(kStart);
    ASSERT_TRUE(next);
    EXPECT_EQ(next->id, id);
    calls.forget(next->number);
  }
  EXPECT_FALSE(calls.start_next(kStart));
}

// Receivers accept, refuse and hang at random. A receiver never has more calls than its room, and
// every call ends within its attempts.
TEST(AsyncCallbacks, ComeToAnEndWhateverReceiversDo) {
  for (uint64_t seed = 1; seed <= 50; ++seed) {
    Random random(seed);
    constexpr size_t kReceivers = 3;
    constexpr uint32_t kRoom = 2;
    constexpr uint32_t kAttempts = 4;
    AsyncCallbacks calls(config_of(kReceivers, kRoom, kAttempts), kMany, seed);
    std::multimap<Instant, AsyncCallbacks::Call> ends;
    std::map<std::string, size_t> receiver_of;
    std::map<std::string, uint32_t> made;
    std::map<std::string, Outcome> outcomes;
    std::vector<uint32_t> running(kReceivers);
    Instant now = kStart;
    for (int turn = 0; turn < 5000 && (turn < 100 || calls.waiting() + calls.running() > 0);
         ++turn) {
      if (turn < 100) {
        const std::string id = std::to_string(turn);
        receiver_of[id] = random.below(kReceivers);
        calls.add(id, "t", receiver_of[id], 0, now);
      }
      while (const auto call = calls.start_next(now)) {
        const size_t receiver = receiver_of[call->id];
        ASSERT_LE(++running[receiver], kRoom) << "seed " << seed;
        ASSERT_LE(++made[call->id], kAttempts) << "seed " << seed;
        const Duration hangs = receiver == 0 ? seconds(10) : std::chrono::milliseconds(10);
        ends.emplace(now + hangs, *call);
      }
      now = std::min(calls.next_due(), ends.empty() ? kNever : ends.begin()->first);
      while (!ends.empty() && ends.begin()->first <= now) {
        const auto call = ends.extract(ends.begin()).mapped();
        running[receiver_of[call.id]] -= 1;
        const auto ended = calls.end(call.number, random.chance(0.3), now);
        ASSERT_EQ(ended.attempts, made[call.id]) << "seed " << seed;
        if (ended.outcome != Outcome::kAgain) {
          ASSERT_TRUE(outcomes.emplace(call.id, ended.outcome).second) << "seed " << seed;
        }
      }
    }
    EXPECT_EQ(outcomes.size(), 100U) << "seed " << seed;
  }
}

}  // namespace
}  // namespace pdjob::router
