// SimWorld: one run of a whole job on virtual time, in one thread, from one seed. Clients, the
// launcher, routers and workers run the production code, shells and cores alike. The network,
// nodes, processes and engines fail. The invariants hold after every event.
//
// First the job gets ready. Then the load and the faults come. When both have ended, all requests
// must end soon, and the job must be as it was asked for. At last it is stopped.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>

#include "tests/simulation/job_watch.h"
#include "tests/simulation/scenario.h"
#include "tests/simulation/sim_async_clients.h"
#include "tests/simulation/sim_clients.h"
#include "tests/simulation/sim_trace.h"
#include "tests/simulation/watched_worker.h"

namespace pdjob::simulation {

struct RunOptions {
  Scenario scenario;
  uint64_t seed = 0;
  SimTrace::Print print = SimTrace::Print::kNo;
  Sabotage sabotage;
  // Only these of the events that the seed draws: requests, faults, and chances of faults.
  std::optional<std::set<uint32_t>> only;
};
struct RunResult {
  std::string violation;  // Empty if all invariants held.
  uint64_t trace_hash = 0;
  uint64_t trace_lines = 0;
  uint32_t events = 0;  // Those that the seed draws.
  SimClients::Counts counts;
  SimAsyncClients::Counts later;
  JobWatch::Counts job;
  uint64_t nodes_lost = 0;
  uint64_t pairs_suspected = 0;
  uint64_t streams_continued = 0;
  uint64_t rows_reused = 0;
  uint64_t launchers_died = 0;
  uint64_t slow_replaced = 0;
  uint64_t failing_replaced = 0;
};
RunResult simulate(const RunOptions& options);

}  // namespace pdjob::simulation
