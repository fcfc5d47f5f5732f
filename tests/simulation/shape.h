// Shape: the kind of job that a seed makes of a scenario. Value.
#pragma once

#include <cstdint>

#include "common/time.h"
#include "launcher/plan/job_config.h"
#include "launcher/plan/scaling_config.h"
#include "launcher/simulator/step_time.h"
#include "router/config/router_config.h"
#include "tests/simulation/scenario.h"
#include "tests/simulation/workload.h"
#include "worker/core/worker_core.h"

namespace pdjob::simulation {

struct Shape {
  worker::EngineSize prefill_engine;
  worker::EngineSize engine;  // The engine of the other roles.
  uint32_t nodes = 1;
  uint32_t routers = 1;
  uint32_t prefill_workers = 1;
  uint32_t decode_workers = 1;
  uint32_t both_workers = 0;
  uint32_t spares = 0;  // Of each group.
  StepTime step_time;
  uint32_t chunk_tokens = 8;
  uint32_t requests_queued = 256;
  bool prefix_cache = true;
  bool shared_kv = true;
  bool two_hop = false;
  bool asynchronous = false;
  bool ends_heard_soon = false;  // By the launcher.
  bool by_hand = false;          // No launcher.
  bool agents = false;           // Nodes have agents, with these:
  Duration agent_lease{};
  Duration orphan_timeout{};
  bool lasts = false;  // Agents and processes outlive the launcher.
  bool scales = false;
  launcher::GroupScaling scaling;  // Of each group.
  Duration zero_after{};           // Zero: never.
  launcher::StragglerConfig stragglers{.factor = 0};
  bool poisons = false;  // Workers of pairs that go on failing are replaced.
  bool decode_wants_gpus = false;
  uint32_t decode_gpu_percent = 100;
  uint32_t decode_parts = 1;          // Nodes of each decode worker.
  bool rollout = false;               // A trainer gives orders.
  bool prefill_wants_labels = false;  // Only every second node has them.
  router::RouterConfig router;
  WorkloadShape workload;
};

// `faultless`: every request must be served. A launcher that dies is no fault then.
Shape draw_shape(const Scenario& scenario, bool faultless, uint64_t seed);

// Changes what all workers of a job do, and perhaps the file of its models. Returns that file:
// SimEngine::Options::file.
uint32_t change_job_file(uint64_t target, launcher::JobConfig& job);

}  // namespace pdjob::simulation
