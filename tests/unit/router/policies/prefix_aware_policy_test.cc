#include "router/policies/prefix_aware_policy.h"

#include <gtest/gtest.h>

#include "tests/support/prefix_trace.h"

namespace pdjob::router {
namespace {

const std::vector<uint64_t> kBlocks = {11, 22, 33, 44};

struct PrefixAwarePolicyTest : testing::Test {
  Chosen choose(const std::vector<uint64_t>& loads, const std::vector<uint64_t>& blocks = kBlocks) {
    std::vector<Candidate> candidates;
    for (size_t i = 0; i < loads.size(); ++i) {
      candidates.push_back({.id = WorkerId{i}, .load = loads[i]});
    }
    const PromptFacts prompt{.tokens = 400, .blocks = blocks};
    const Chosen chosen = policy.choose(prompt, candidates, random);
    policy.note_sent(prompt, chosen.worker);
    return chosen;
  }

  PrefixAwarePolicy policy{1000};
  Random random{1};
};

TEST_F(PrefixAwarePolicyTest, ReturnsToTheWorkerThatKnowsThePrompt) {
  EXPECT_EQ(choose({5, 0, 5}).worker, WorkerId{1});
  const Chosen again = choose({0, 5, 0});
  EXPECT_EQ(again.worker, WorkerId{1});
  EXPECT_EQ(again.cached_tokens, 400U);
}

TEST_F(PrefixAwarePolicyTest, AMatchIsWorthAWaitButNotAnyWait) {
  choose({5, 0});
  const uint64_t worth = kRecomputeWeight * 200;  // Half of the 400 tokens are cached.
  EXPECT_EQ(choose({0, worth - 1}, {11, 22, 99, 98}).worker, WorkerId{1});
  EXPECT_EQ(choose({0, worth + 1}, {11, 22, 97, 96}).worker, WorkerId{0});
}

TEST_F(PrefixAwarePolicyTest, WhatAStoreHasCostsALittle) {
  const auto best = [this](std::vector<Candidate> candidates) {
    return policy.choose({.tokens = 400, .blocks = kBlocks}, candidates, random);
  };
  // Worker 0 would load the prompt from another machine, worker 1 from its own.
  const Candidate far{.id = WorkerId{0}, .load = 0, .stored_near = 0, .stored = 4};
  Candidate near{.id = WorkerId{1}, .load = 0, .stored_near = 4, .stored = 4};
  EXPECT_EQ(best({far, near}).worker, WorkerId{1});
  EXPECT_EQ(best({far, near}).cached_tokens, 400U);
  near.load = kRecomputeWeight * 400 * (kLoadEighths - kLoadNearEighths) / 8 + 1;
  EXPECT_EQ(best({far, near}).worker, WorkerId{0});
  EXPECT_EQ(best({far, near}).cached_tokens, 400U);
}

TEST_F(PrefixAwarePolicyTest, StrangersGoToTheWorkerThatHoldsTheFewestPrefixes) {
  EXPECT_EQ(choose({0, 0}, {1, 2, 3}).worker, WorkerId{0});
  EXPECT_EQ(choose({0, 0}, {4, 5}).worker, WorkerId{1});
  EXPECT_EQ(choose({0, 0}, {6, 7}).worker, WorkerId{1});
  EXPECT_EQ(choose({0, 0}, {8, 9}).worker, WorkerId{0});
}

TEST_F(PrefixAwarePolicyTest, APromptWithoutABlockGoesWhereTheLoadIsLeast) {
  EXPECT_EQ(choose({7, 3, 5}, {}).worker, WorkerId{1});
}

// 64 workers get almost the hits of a single cache that never evicts, with fewer index entries than
// blocks. On the whole trace it is 95 % (docs/performance.md); at its beginning the caches are
// emptier.
TEST(PrefixAwareTrace, FindsWhatIsThereToFindAndKeepsWorkersBusyAlike) {
  const auto trace = load_trace(PDJOB_TEST_DATA "/mooncake_conversation_3000.txt");
  ASSERT_EQ(trace.size(), 3000U);
  PrefixAwarePolicy policy(50'000);
  const ReplayResult result = replay(trace, policy, {});
  EXPECT_GT(result.bound, 0.3);
  EXPECT_GE(result.hits, 0.93 * result.bound);
  EXPECT_LT(result.tokens_max_to_mean, 1.5);
}

// The workers' caches are a fraction of the data that passes through them.
TEST(PrefixAwareTrace, OfWorkersThatForgetEventsTellWhatIsLeft) {
  const auto trace = load_trace(PDJOB_TEST_DATA "/mooncake_conversation_3000.txt");
  const Replay how{.cache_blocks = 250};
  const ReplayResult history = replay_prefix_aware(trace, 1, /*events=*/false, how);
  const ReplayResult events = replay_prefix_aware(trace, 1, /*events=*/true, how);
  EXPECT_GT(events.hits, history.hits);
  EXPECT_LT(events.missed, 0.5 * history.missed);
  EXPECT_LT(events.wait_p99_seconds, 0.9 * history.wait_p99_seconds);
}

// Each of several routers has sent only a part of what the workers hold.
TEST(PrefixAwareTrace, EventsTellARouterWhatOthersSent) {
  const auto trace = load_trace(PDJOB_TEST_DATA "/mooncake_conversation_3000.txt");
  const Replay how{.cache_blocks = 250};
  const ReplayResult history = replay_prefix_aware(trace, 4, /*events=*/false, how);
  const ReplayResult events = replay_prefix_aware(trace, 4, /*events=*/true, how);
  EXPECT_GT(events.hits, 1.08 * history.hits);
}

}  // namespace
}  // namespace pdjob::router
