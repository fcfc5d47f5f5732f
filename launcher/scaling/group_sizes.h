// Sizes of a job's groups as a person or the autoscaler orders them, and how far they are. Pure.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "common/result.h"
#include "launcher/job/job.h"

namespace pdjob::launcher {

// Where a group stands.
struct GroupProgress {
  uint32_t wanted = 0;
  uint32_t serving = 0;
  uint32_t spares = 0;  // That could serve.
  std::string missing;  // For people: what it still waits for; empty: it has its size.
  std::string trouble;  // Why a worker does not come: it died again and again, or has no place.
};

struct GroupLimits {
  uint32_t workers_per_group_max = 1;
  uint32_t workers_max = 1;  // Of all groups together.
};

using Sizes = std::map<std::string, uint32_t>;  // By the group's name.

// The job's groups with these sizes. Other groups stay, and names of no group are ignored.
std::vector<JobGroup> with_sizes(std::vector<JobGroup> groups, const Sizes& wanted);
// The same for a person's order. kInvalidArgument: an unknown group, or a size that is out of
// bounds. kUnavailable: the nodes have no room for the workers that come on top; the message says
// what is short.
Result<std::vector<JobGroup>> resized(const Job& job, const Sizes& wanted,
                                      const GroupLimits& limits);
GroupProgress progress_of(const JobGroup& group, const Job& job);

}  // namespace pdjob::launcher
