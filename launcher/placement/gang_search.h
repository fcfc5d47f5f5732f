// Searches all ways to place groups on nodes, without preferences. It finds one if there is one,
// or runs out of steps. It also gives up where parts of GPUs do not divide each other: a node may
// have room for them in a way that it does not try. Pure.
#pragma once

#include <cstdint>
#include <vector>

#include "launcher/placement/demand.h"
#include "launcher/placement/node_share.h"

namespace pdjob::launcher {

inline constexpr uint64_t kSearchStepsMax = 2'000'000;  // Well below a second.

struct SearchGroup {
  Demand demand;
  uint32_t workers = 0;
};

struct SearchResult {
  enum class Outcome { kFound, kImpossible, kGivenUp };
  Outcome outcome = Outcome::kImpossible;
  // Of kFound: by group and node, how many parts of workers the node gets, at most one of each.
  std::vector<std::vector<uint32_t>> counts;
};

// Requires: groups that want larger parts of GPUs come first.
SearchResult search_places(const std::vector<NodeShare>& nodes,
                           const std::vector<SearchGroup>& groups, bool overcommit,
                           uint64_t steps_max = kSearchStepsMax);

}  // namespace pdjob::launcher
