#include "router/pair_policy.h"

#include <map>
#include <vector>

#include <gtest/gtest.h>

namespace pdjob::router {
namespace {

std::vector<uint64_t> choices(PairPolicy& policy, const std::vector<Candidate>& candidates,
                              int times) {
  Random random(1);
  std::vector<uint64_t> chosen;
  for (int i = 0; i < times; ++i) {
    chosen.push_back(policy.choose(candidates, random).value);
  }
  return chosen;
}

TEST(RoundRobinPolicy, TakesEachInTurn) {
  const auto policy = make_policy(PolicyKind::kRoundRobin);
  EXPECT_EQ(choices(*policy, {{WorkerId{2}}, {WorkerId{5}}, {WorkerId{9}}}, 5),
            (std::vector<uint64_t>{2, 5, 9, 2, 5}));
}

TEST(RoundRobinPolicy, KeepsTurnsWhenAWorkerLeaves) {
  const auto policy = make_policy(PolicyKind::kRoundRobin);
  choices(*policy, {{WorkerId{2}}, {WorkerId{5}}, {WorkerId{9}}}, 2);
  EXPECT_EQ(choices(*policy, {{WorkerId{2}}, {WorkerId{9}}}, 3), (std::vector<uint64_t>{9, 2, 9}));
}

TEST(LeastLoadedPolicy, TakesTheLeastAndTheLowestIdOfEquals) {
  const auto policy = make_policy(PolicyKind::kLeastLoaded);
  EXPECT_EQ(choices(*policy, {{WorkerId{1}, 7}, {WorkerId{2}, 3}, {WorkerId{3}, 3}}, 2),
            (std::vector<uint64_t>{2, 2}));
}

TEST(PowerOfTwoPolicy, NeverTakesTheWorstOfThree) {
  const auto policy = make_policy(PolicyKind::kPowerOfTwo);
  std::map<uint64_t, int> counts;
  for (const uint64_t id :
       choices(*policy, {{WorkerId{1}, 5}, {WorkerId{2}, 90}, {WorkerId{3}, 5}}, 300)) {
    counts[id] += 1;
  }
  EXPECT_EQ(counts[2], 0);
  EXPECT_GT(counts[1], 50);
  EXPECT_GT(counts[3], 50);
}

TEST(PowerOfTwoPolicy, DecidesEqualLoadsByTheLowerId) {
  const auto policy = make_policy(PolicyKind::kPowerOfTwo);
  EXPECT_EQ(choices(*policy, {{WorkerId{4}, 5}, {WorkerId{6}, 5}}, 3),
            (std::vector<uint64_t>{4, 4, 4}));
}

TEST(PairPolicy, TakesTheOnlyOne) {
  for (const PolicyKind kind :
       {PolicyKind::kRoundRobin, PolicyKind::kLeastLoaded, PolicyKind::kPowerOfTwo}) {
    EXPECT_EQ(choices(*make_policy(kind), {{WorkerId{7}, 1}}, 2), (std::vector<uint64_t>{7, 7}))
        << to_string(kind);
  }
}

}  // namespace
}  // namespace pdjob::router
