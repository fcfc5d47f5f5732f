// A small world of KV endpoints alone, on virtual time: one sender and two receivers. The
// endpoints, their links and their transports are the production code; simulated are the sockets,
// the time and the workers. The seed decides the transfers and the faults. Processes die, restart
// and stop. Connections break or go dead. Transports lose, delay and damage rows, and peers lose or
// repeat messages.
#pragma once

#include <cstdint>
#include <string>

#include "tests/simulation/sim_trace.h"

namespace pdjob::simulation {

struct KvRunOptions {
  uint64_t seed = 1;
  SimTrace::Print print = SimTrace::Print::kNo;
};

struct KvRunResult {
  std::string violation;  // Empty: all invariants held.
  uint64_t trace_hash = 0;
  uint64_t trace_lines = 0;
  uint64_t done = 0, failed = 0, released_late = 0;
};

KvRunResult simulate_kv(const KvRunOptions& options);

}  // namespace pdjob::simulation
