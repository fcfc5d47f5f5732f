// A world around the real Job core on virtual time: a simulated cluster, processes that register,
// beat, confirm and drain, and a control plane that loses messages. The seed decides the job and
// the faults. Processes die, crash, hang, fail to start or never become ready. Nodes are lost and
// join. Control messages are lost, and probes fail or take long. Processes are added, retired and
// given another role. Then the faults end, everything must be ready within a bound, and the job is
// stopped.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "launcher/job/job.h"
#include "tests/simulation/sim_trace.h"

namespace pdjob::simulation {

struct JobRunOptions {
  uint64_t seed = 0;
  SimTrace::Print print = SimTrace::Print::kNo;
  // A canary: changes what the core is told, or its effects. The invariants must notice it.
  std::function<bool(launcher::Event&)> event;  // Returns false to hide it.
  std::function<void(std::vector<launcher::Effect>&)> effects;
};

struct JobRunResult {
  std::string violation;  // Empty: all invariants held.
  uint64_t trace_hash = 0;
  uint64_t trace_lines = 0;
  uint64_t spawns = 0;
  uint64_t probes = 0;
  uint64_t nodes_lost = 0;
  uint64_t retired = 0;
};

JobRunResult simulate_job(const JobRunOptions& options);

}  // namespace pdjob::simulation
