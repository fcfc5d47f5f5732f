#include "router/admission/fair_shares.h"

#include <algorithm>

namespace pdjob::router {
namespace {

// So that a small cost counts even with a large weight.
constexpr uint64_t kScale = 1000;

}  // namespace

uint64_t FairShares::begin(uint32_t tenant, uint32_t weight, uint64_t cost) {
  uint64_t& end = ends_[tenant];
  const uint64_t start = std::max(now_, end);
  end = start + std::max<uint64_t>(1, cost * kScale / weight);
  return start;
}

}  // namespace pdjob::router
