// Plays a recorded load to a job on virtual time: a router and workers as they ship, shells and
// cores, started by hand. Nothing fails. Steps and KV transfers take the time that a model of them
// says (step_time.h). One seed decides a run.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "decode/decode_config.h"
#include "prefill/prefill_config.h"
#include "router/config/router_config.h"
#include "tests/simulation/request_trace.h"
#include "tests/simulation/sim_sockets.h"
#include "launcher/simulator/step_time.h"
#include "tests/simulation/trace_clients.h"
#include "worker/core/worker_core.h"

namespace pdjob::simulation {

// A KV row of the simulated engine has fewer bytes than that of a real one.
inline constexpr uint32_t kSimKvRowBytes = 512;

struct TraceJob {
  uint32_t prefill = 0, decode = 0, both = 0;  // Workers.
  worker::EngineSize engine;                   // Of each worker.
  prefill::PrefillConfig prefill_config;
  decode::DecodeConfig decode_config;  // Also of workers with both roles.
  router::RouterConfig router;
  StepTime step_time;
  Duration kv_row_time{};  // For the KV of a token to pass between two workers.
};

struct TraceRun {
  TraceJob job;
  RequestTrace trace;
  TraceScale scale;
  Duration patience = std::chrono::hours(1);  // The run ends so long after the last arrival.
  uint64_t seed = 1;
};

struct TraceResult {
  std::string violation;  // Empty if all invariants held.
  std::vector<TraceOutcome> outcomes;
  Duration arrivals{};  // Time of all arrivals.
  uint64_t rows_reused = 0;
};

TraceResult play(const TraceRun& run);

// Requests per second that are served within both limits.
struct Slo {
  Duration ttft{};
  Duration itl{};
  bool holds(const TraceOutcome& outcome) const {
    return outcome.served && outcome.ttft <= ttft && outcome.itl <= itl;
  }
};
struct Goodput {
  double offered = 0;  // Requests per second.
  double good = 0;     // Those of them within the limits.
  double share() const { return offered > 0 ? good / offered : 0; }
};
Goodput goodput_of(const TraceResult& result, const Slo& slo);

}  // namespace pdjob::simulation
