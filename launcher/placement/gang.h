// Gang: places the groups of a job all together, or not at all.
//
// Each group gets all its workers if they fit. Otherwise each gets at least its minimum, and what
// is left goes to the groups in equal shares; the other workers wait for more nodes. Such a result
// is as large as it can be: no waiting worker has a place left.
//
// It tries four ways, from the best placement to the least picky one:
//   1. each model in one cluster, its groups in turn, so that KV stays near;
//   2. the same over all clusters;
//   3. the group with the least room first, or the largest workers, on the nodes that they fill
//      best;
//   4. a search over all possibilities, which ignores preferences.
// Overcommitment (node.h) is tried last. A job that does not fit is refused for certain unless the
// search ran out of its steps, which the error then says: placing groups is a hard problem.
// Pure.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/result.h"
#include "launcher/placement/demand.h"
#include "launcher/placement/placement.h"

namespace pdjob::launcher {

struct Group {
  std::string name;  // For people: "decode".
  Demand demand;
  uint32_t workers = 0;
  uint32_t workers_min = 0;  // At most `workers`. The job starts with so many.
};

// By group. A group with fewer choices than workers lacks places for the last ones.
using GangPlaces = std::vector<std::vector<ChosenPlace>>;

// Takes the places of all groups. kUnavailable: they do not fit, and `placement` is as before; the
// message says what is short by how much, and which node comes nearest.
Result<GangPlaces> place_together(Placement& placement, const std::vector<Group>& groups);

// Which of several groups is next to get a place: the one with the smallest share of its workers
// placed, the first of equal ones. groups.size(): all have theirs, or are in `stuck`.
struct GroupCount {
  uint64_t placed = 0;
  uint64_t wanted = 0;
  bool stuck = false;  // There is no room for another worker.
};
size_t next_group(const std::vector<GroupCount>& groups);

}  // namespace pdjob::launcher
