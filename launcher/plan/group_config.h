// GroupConfig: on which nodes the workers of one role may run, and with how many of them a job
// starts. Value.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "common/config/config_reader.h"
#include "common/limits.h"
#include "launcher/placement/demand.h"
#include "launcher/plan/scaling_config.h"

namespace pdjob::launcher {

inline constexpr uint32_t kWorkersPerRoleMax = limits::kWorkersMax / 2 - 1;

struct GroupConfig {
  uint32_t workers_min = 0;  // 0: all.
  uint32_t spares = 0;
  std::vector<std::string> clusters;
  std::map<std::string, std::string> labels;
  Arrange arrange = Arrange::kSpread;
  uint64_t memory_mib = 0;  // Of a worker, beside the model's file; 0: its KV.
  GroupScaling scaling;
};

// Declares the keys of `prefill` and `decode` that are about nodes and about scaling.
void read(ConfigReader& in, GroupConfig& config);
// Checks them against the number of workers in the same section.
void check(ConfigReader& in, const std::string& section, uint32_t workers,
           const GroupConfig& config);

}  // namespace pdjob::launcher
