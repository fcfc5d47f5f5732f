// Plays a recorded load to a job on virtual time: a router and workers as they ship, shells and
// cores, started by hand, or by a launcher that scales them. Nothing fails. Steps and KV transfers
// take the time that a model of them says (step_time.h). One seed decides a run.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "decode/decode_config.h"
#include "launcher/played/played_launcher.h"
#include "launcher/played/request_trace.h"
#include "launcher/played/trace_clients.h"
#include "launcher/simulator/sim_sockets.h"
#include "launcher/simulator/step_time.h"
#include "prefill/prefill_config.h"
#include "router/config/router_config.h"
#include "worker/core/worker_core.h"

namespace pdjob::simulation {

inline constexpr const char* kRouterDoor = "10.0.0.1:8000";  // Where clients come.

struct TraceJob {
  uint32_t prefill = 0, decode = 0, both = 0;        // Workers.
  worker::EngineSize engine;                         // Of each worker.
  std::optional<worker::EngineSize> prefill_engine;  // Of prefill workers, where it differs.
  prefill::PrefillConfig prefill_config;
  decode::DecodeConfig decode_config;  // Also of workers with both roles.
  router::RouterConfig router;
  StepTime step_time;
  StepTime::Time kv_row_time{};  // For the KV of a token to pass between two workers.
  Duration kv_transfer_time{};   // Added to each transfer.
  Duration request_time{};       // Added to each request, before it reaches the router.
  Duration worker_queue_timeout = std::chrono::hours(1000);  // OpenaiApiOptions::queue_timeout.
  // The launcher that starts and scales its workers; null: the sizes above hold.
  std::shared_ptr<const LaunchedJob> launched;
};

struct TraceRun {
  TraceJob job;
  RequestTrace trace;
  TraceScale scale;
  Duration patience = std::chrono::hours(1);  // The run ends so long after the last arrival.
  uint64_t seed = 1;
  Duration sample_every{};  // How often TraceResult::samples grows; 0: never.
  // Makes the core of a worker, of the factory that it would have. Tests watch cores so.
  std::function<worker::CoreFactory(const std::string& worker, worker::CoreFactory make)> around;
};

// What one worker did in one life.
struct TraceWorker {
  net::Role role = net::Role::kBoth;
  Duration lived{};  // Of the run, so long; starting counts.
  Duration busy{};   // In its engine's steps.
  uint64_t kv_rows_sent = 0;
  uint64_t kv_transfers = 0;  // That it sent.
  uint64_t rows_reused = 0;
};

// The job at one time, by role: [0] prefill, [1] decode, [2] both.
struct TraceSample {
  struct OfRole {
    uint32_t workers = 0;
    double busy = 0;  // The share of the time since the last sample, mean of the workers.
    uint32_t running = 0, queued = 0;
    uint64_t kv_rows_used = 0;
  };
  Duration at{};
  std::array<OfRole, 3> roles;
};

// A line of the autoscaler's.
struct TraceDecision {
  Duration at{};
  std::string text;
};

struct TraceResult {
  std::vector<TraceOutcome> outcomes;
  std::vector<TraceWorker> workers;
  std::vector<TraceSample> samples;
  std::vector<TraceDecision> decisions;
  Duration arrivals{};  // Time of all arrivals.
  Duration lasted{};    // Until the last request ended, or patience did.
  uint64_t rows_reused = 0;
};

// Requires: the launched job, if there is one, gets ready.
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
