// A small world of KV endpoints alone, on virtual time: one sender and two receivers, and a store
// that keeps blocks for them. The endpoints, their links and their transports are the production
// code, and so are the core and the memory of the store; simulated are the sockets, the time and
// the workers. The seed decides the transfers, the blocks and the faults. Processes die, restart
// and stop. Connections break or go dead. Transports lose, delay and damage rows, and peers lose or
// repeat messages. Workers lie about their blocks, and bytes in the memory of the store change.
//
// Nothing fails in runs whose seed is a multiple of 8. In other multiples of 4 only the store
// fails, and workers lie to it. Then no KV may be lost that workers hand over to each other.
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
  // Blocks: the store took them, or read them from its disk; they came to a worker; the store
  // lacked them; they did not come.
  uint64_t blocks_kept = 0, blocks_read = 0, blocks_loaded = 0, blocks_missing = 0,
           blocks_failed = 0;
};

KvRunResult simulate_kv(const KvRunOptions& options);

}  // namespace pdjob::simulation
