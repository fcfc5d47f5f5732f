// What overcommitted nodes mean, for people. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "launcher/placement/placement.h"

namespace pdjob::launcher {

// A sentence for each kind of thing that a node promises more than once.
std::vector<std::string> crowding(const std::vector<NodeShare>& shares);
// The sentences that come on top when so many more such processes have taken their places.
std::vector<std::string> crowding_after(Placement placement,
                                        const std::vector<std::pair<Demand, uint64_t>>& more);

}  // namespace pdjob::launcher
