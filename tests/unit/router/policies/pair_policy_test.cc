#include "router/policies/pair_policy.h"

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
    const WorkerId worker = policy.choose({}, candidates, random).worker;
    policy.note_sent({}, worker);
    chosen.push_back(worker.value);
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

TEST(RoundRobinPolicy, KeepsTurnsOfTheWorkersOfEachModel) {
  const auto policy = make_policy(PolicyKind::kRoundRobin);
  std::vector<uint64_t> chosen;
  for (int i = 0; i < 3; ++i) {
    for (const std::vector<Candidate>& model :
         {std::vector<Candidate>{{WorkerId{1}}, {WorkerId{2}}}, {{WorkerId{3}}, {WorkerId{4}}}}) {
      chosen.push_back(choices(*policy, model, 1).front());
    }
  }
  EXPECT_EQ(chosen, (std::vector<uint64_t>{1, 3, 2, 4, 1, 3}));
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

TEST(RandomPolicy, TakesEachAsOften) {
  const auto policy = make_policy(PolicyKind::kRandom);
  std::map<uint64_t, int> counts;
  for (const uint64_t id : choices(*policy, {{WorkerId{1}, 5}, {WorkerId{2}, 90}}, 400)) {
    counts[id] += 1;
  }
  EXPECT_GT(counts[1], 150);
  EXPECT_GT(counts[2], 150);
}

std::vector<Candidate> named(const std::vector<uint64_t>& ids) {
  std::vector<Candidate> candidates;
  for (const uint64_t id : ids) {
    candidates.push_back({.id = WorkerId{id}, .load = id, .name_hash = mix(id % 100)});
  }
  return candidates;
}

uint64_t worker_of(PairPolicy& policy, uint64_t session, const std::vector<Candidate>& candidates) {
  Random random(1);
  return policy.choose({.session = session}, candidates, random).worker.value;
}

TEST(ConsistentHashPolicy, MovesOnlyTheSessionsOfTheWorkerThatLeft) {
  const auto policy = make_policy(PolicyKind::kConsistentHash);
  std::map<uint64_t, int> sessions;
  for (uint64_t session = 1; session <= 1000; ++session) {
    const uint64_t before = worker_of(*policy, session, named({1, 2, 3, 4}));
    const uint64_t after = worker_of(*policy, session, named({1, 2, 4}));
    EXPECT_TRUE(before == after || before == 3) << session;
    sessions[before] += 1;
  }
  for (const auto& [worker, count] : sessions) {
    EXPECT_GT(count, 180) << worker;
  }
}

// Worker 101 is the next incarnation of worker 1.
TEST(ConsistentHashPolicy, GivesTheSessionsOfAWorkerToItsSuccessor) {
  const auto policy = make_policy(PolicyKind::kConsistentHash);
  for (uint64_t session = 1; session <= 100; ++session) {
    EXPECT_EQ(worker_of(*policy, session, named({1, 2, 3})),
              worker_of(*policy, session, named({2, 3, 101})) % 100);
  }
}

TEST(ConsistentHashPolicy, TakesTheLeastLoadedForARequestOfNoSession) {
  EXPECT_EQ(worker_of(*make_policy(PolicyKind::kConsistentHash), 0, named({7, 2, 5})), 2U);
}

TEST(PairPolicy, TakesTheOnlyOne) {
  for (const PolicyKind kind :
       {PolicyKind::kRoundRobin, PolicyKind::kLeastLoaded, PolicyKind::kPowerOfTwo,
        PolicyKind::kRandom, PolicyKind::kConsistentHash, PolicyKind::kPrefixAware}) {
    EXPECT_EQ(choices(*make_policy(kind), {{WorkerId{7}, 1}}, 2), (std::vector<uint64_t>{7, 7}))
        << static_cast<int>(kind);
  }
}

}  // namespace
}  // namespace pdjob::router
