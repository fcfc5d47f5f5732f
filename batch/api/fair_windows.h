// How the rows in flight are shared between tenants. Each run finds by itself how many rows help it
// (batch/core/window.h), so a tenant with many runs would have many times the rows of another.
// Pure.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace pdjob::batch {

struct RunShare {
  std::string tenant;
  size_t in_flight = 0;  // Rows.
  size_t window = 0;     // As many may be.
};

// Returns the windows that the runs should have, in the same order. Only runs that use their whole
// window count. If one tenant has more than twice the rows of another, all tenants get equal parts
// of what they have together; otherwise nothing changes.
std::vector<size_t> fair_windows(const std::vector<RunShare>& runs);

}  // namespace pdjob::batch
