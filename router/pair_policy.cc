#include "router/pair_policy.h"

#include "common/check.h"
#include "common/limits.h"
#include "router/consistent_hash_policy.h"
#include "router/least_loaded_policy.h"
#include "router/power_of_two_policy.h"
#include "router/prefix_aware_policy.h"
#include "router/random_policy.h"
#include "router/round_robin_policy.h"

namespace pdjob::router {

std::unique_ptr<PairPolicy> make_policy(PolicyKind kind) {
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
      return std::make_unique<PrefixAwarePolicy>(limits::kPrefixEntriesMax);
  }
  check_failed(__FILE__, __LINE__, "a PolicyKind", "");
}

}  // namespace pdjob::router
