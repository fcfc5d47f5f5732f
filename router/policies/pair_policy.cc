#include "router/policies/pair_policy.h"

#include "common/check.h"
#include "common/limits.h"
#include "router/policies/consistent_hash_policy.h"
#include "router/policies/least_loaded_policy.h"
#include "router/policies/plugin_policy.h"
#include "router/policies/power_of_two_policy.h"
#include "router/policies/prefix_aware_policy.h"
#include "router/policies/random_policy.h"
#include "router/policies/round_robin_policy.h"

namespace pdjob::router {

std::unique_ptr<PairPolicy> make_policy(PolicyKind kind, KvKnowledge* kv) {
  switch (kind) {
    case PolicyKind::kRoundRobin:
      return std::make_unique<RoundRobinPolicy>();
    case PolicyKind::kLeastLoaded:
      return std::make_unique<LeastLoadedPolicy>();
    case PolicyKind::kPowerOfTwo:
      return std::make_unique<PowerOfTwoPolicy>();
    case PolicyKind::kRandom:
      return std::make_unique<RandomPolicy>();
    case PolicyKind::kConsistentHash:
      return std::make_unique<ConsistentHashPolicy>();
    case PolicyKind::kPrefixAware:
      return std::make_unique<PrefixAwarePolicy>(limits::kPrefixEntriesMax, kv);
    case PolicyKind::kPlugin:
      break;
  }
  check_failed(__FILE__, __LINE__, "a built-in PolicyKind", "");
}

Result<Policies> open_policies(const RouterConfig& config) {
  Policies policies;
  if (listens_to_kv(config)) {
    policies.kv = std::make_unique<KvKnowledge>(KvKnowledge::Limits{
        .blocks_max = limits::kKvBlocksMax, .texts_max = limits::kTokenChainsMax});
  }
  const auto open = [&](PolicyKind kind, Stage stage) -> Result<std::unique_ptr<PairPolicy>> {
    if (kind == PolicyKind::kPlugin) {
      return PluginPolicy::open(config.policy_plugin, stage, config.policy_options);
    }
    return make_policy(kind, policies.kv.get());
  };
  PDJOB_TRY(policies.prefill, open(config.prefill_policy, Stage::kPrefill));
  PDJOB_TRY(policies.decode, open(config.decode_policy, Stage::kDecode));
  return policies;
}

}  // namespace pdjob::router
