#include "router/policies/plugin_policy.h"

#include <set>

#include <gtest/gtest.h>

namespace pdjob::router {
namespace {

RouterConfig with(const std::string& library, const std::string& options = "") {
  return {.prefill_policy = PolicyKind::kLeastLoaded,
          .decode_policy = PolicyKind::kPlugin,
          .policy_plugin = library,
          .policy_options = options};
}

const std::vector<Candidate> kThree = {
    {.id = WorkerId{1}, .load = 50, .name = "spot-1", .requests = 1},
    {.id = WorkerId{4}, .load = 10, .name = "spot-4", .requests = 2},
    {.id = WorkerId{9}, .load = 90, .name = "own-9", .requests = 1}};

std::set<uint64_t> chosen_by(const PairPolicy& policy) {
  Random random(1);
  std::set<uint64_t> chosen;
  for (int i = 0; i < 100; ++i) {
    chosen.insert(policy.choose({}, kThree, random).worker.value);
  }
  return chosen;
}

TEST(PluginPolicy, TheExampleTakesTheFewestRequestsAndOfEqualsThePreferred) {
  const auto any = open_policies(with(PDJOB_EXAMPLE_POLICY));
  ASSERT_TRUE(any) << any.error().message;
  EXPECT_EQ(chosen_by(*any->decode), (std::set<uint64_t>{1, 9}));
  EXPECT_FALSE(any->decode->wants_blocks());
  const auto own = open_policies(with(PDJOB_EXAMPLE_POLICY, "own-"));
  EXPECT_EQ(chosen_by(*own->decode), std::set<uint64_t>{9});
  EXPECT_EQ(chosen_by(*own->prefill), std::set<uint64_t>{4}) << "built in: the least loaded";
}

TEST(PluginPolicy, AChoiceThatIsNoneFallsBackToTheLeastLoaded) {
  const auto rude = open_policies(with(PDJOB_RUDE_POLICY));
  ASSERT_TRUE(rude) << rude.error().message;
  EXPECT_EQ(chosen_by(*rude->decode), std::set<uint64_t>{4});
}

// Otherwise the worker's load would become negative.
TEST(PluginPolicy, NoMoreOfAPromptIsCachedThanThereIs) {
  const auto rude = open_policies(with(PDJOB_RUDE_POLICY));
  ASSERT_TRUE(rude) << rude.error().message;
  Random random(1);
  const Chosen chosen = rude->decode->choose({.tokens = 7, .session = 1}, kThree, random);
  EXPECT_EQ(chosen.worker, WorkerId{1});
  EXPECT_EQ(chosen.cached_tokens, 7U);
}

TEST(PluginPolicy, WhatIsNoPluginIsAnErrorThatSaysWhy) {
  EXPECT_EQ(open_policies(with("/nowhere/x.so")).error().message.find("cannot load /nowhere/x.so"),
            0U);
  const auto other = open_policies(with("libm.so.6"));
  EXPECT_NE(other.error().message.find("it has no function pdjob_policy_v1"), std::string::npos)
      << other.error().message;
  EXPECT_EQ(open_policies(with(PDJOB_RUDE_POLICY, "!")).error().message,
            PDJOB_RUDE_POLICY " does not open with policy_options \"!\"");
}

}  // namespace
}  // namespace pdjob::router
