// The configuration of the autoscaler: how many workers a group may have, and what it should hold.
// Also when a slow worker is replaced. Values.
#pragma once

#include <cstdint>

#include "common/config/config_reader.h"
#include "common/time.h"

namespace pdjob::launcher {

// Of the workers of one role.
struct GroupScaling {
  uint32_t workers_min = 1;
  uint32_t workers_max = 0;  // 0: it keeps its size.
  Duration ttft{};           // Target: mean time to first token at its workers; zero: none.
  Duration itl{};            // Target: mean time between two tokens; zero: none.
  double kv_use = 0.9;       // Target: share of the KV rows in use.
  Duration down_after = std::chrono::minutes(1);

  bool on() const { return workers_max > 0; }
};

// Of the whole job.
struct JobScalingConfig {
  uint32_t workers_max = 0;  // All groups together; 0: no limit.
  uint32_t gpus_max = 0;     // The same.
  // Prefill workers per decode worker of a model; 0: no limit.
  double prefill_per_decode_min = 0;
  double prefill_per_decode_max = 0;
  Duration zero_after{};  // Without requests for so long, all workers end. Zero: never.
};

// When a worker that computes slower than its peers is replaced (launcher/scaling/stragglers.h).
struct StragglerConfig {
  double factor = 3;                         // So many times slower; 0: never.
  Duration after = std::chrono::minutes(1);  // For so long.

  bool on() const { return factor > 0; }
};

// Declares the keys of `launcher.stragglers`.
void read(ConfigReader& in, StragglerConfig& config);
// Declares the keys of `prefill.scaling` and `decode.scaling`.
void read(ConfigReader& in, GroupScaling& config);
void check(ConfigReader& in, const std::string& section, uint32_t workers,
           const GroupScaling& config);
// Declares the keys of `scaling`.
void read(ConfigReader& in, JobScalingConfig& config);

}  // namespace pdjob::launcher
