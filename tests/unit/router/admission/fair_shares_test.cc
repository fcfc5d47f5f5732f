#include "router/admission/fair_shares.h"

#include <algorithm>
#include <vector>

#include <gtest/gtest.h>

namespace pdjob::router {
namespace {

// Serves the queue in order of `begin`. Returns how many of the first `served` belong to each
// tenant.
std::vector<int> counts_of_first(size_t served, const std::vector<uint32_t>& weights,
                                 const std::vector<int>& asked, uint64_t cost = 10) {
  FairShares shares;
  std::vector<std::pair<uint64_t, uint32_t>> queue;
  for (uint32_t tenant = 0; tenant < weights.size(); ++tenant) {
    for (int i = 0; i < asked[tenant]; ++i) {
      queue.emplace_back(shares.begin(tenant, weights[tenant], cost), tenant);
    }
  }
  std::ranges::sort(queue);
  std::vector<int> counts(weights.size());
  for (size_t i = 0; i < served; ++i) {
    counts[queue[i].second] += 1;
  }
  return counts;
}

TEST(FairShares, WhoAsksALotGetsNoMoreThanItsShare) {
  EXPECT_EQ(counts_of_first(20, {1, 1}, {1000, 10}), (std::vector<int>{10, 10}));
}

TEST(FairShares, SharesAreByWeight) {
  EXPECT_EQ(counts_of_first(40, {3, 1}, {100, 100}), (std::vector<int>{30, 10}));
}

TEST(FairShares, OneTenantIsServedInOrderOfArrival) {
  FairShares shares;
  uint64_t last = 0;
  for (const uint64_t cost : {100, 1, 50, 0, 7}) {
    const uint64_t begins = shares.begin(0, 1, cost);
    EXPECT_GE(begins, last);
    last = begins;
  }
}

// Otherwise an idle tenant would come back with all its unused share.
TEST(FairShares, WhoWasIdleSavesNothing) {
  FairShares shares;
  for (int i = 0; i < 100; ++i) {
    shares.served(shares.begin(0, 1, 10));
  }
  EXPECT_GE(shares.begin(1, 1, 10), shares.begin(0, 1, 10) - 10'000);
}

}  // namespace
}  // namespace pdjob::router
