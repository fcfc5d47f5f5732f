// LoadMeter: what a worker reports of its load, its pace and its standstills. Loop-bound.
#pragma once

#include <cstdint>
#include <functional>

#include "engine/engine.h"
#include "net/control/message.h"
#include "worker/api/starved_time.h"
#include "worker/api/worker_metrics.h"
#include "worker/core/generation.h"
#include "worker/core/standstill.h"

namespace pdjob::worker {

class LoadMeter {
 public:
  // `run_delays`: of this process, now.
  LoadMeter(const engine::EngineConfig& engine, WorkerMetrics& metrics,
            std::function<RunDelays()> run_delays)
      : metrics_(metrics), run_delays_(std::move(run_delays)) {
    load_.rows_max = uint64_t{engine.sequences} * engine.tokens_per_sequence;
  }

  // The engine thread's report of one turn.
  void take(const CoreLoad& load, const EngineWork& work);
  // A token has come so long after its request, or after the token before it.
  void first_token(Duration latency) { count(ttft_, metrics_.time_to_first_token, latency); }
  void next_token(Duration latency) { count(itl_, metrics_.inter_token_latency, latency); }
  // `prompts_held`: beside those that the engine has. `helper`: how long the helper thread that is
  // the slowest now has not returned from its work.
  net::WorkerLoad load(size_t prompts_held, const Standstill& engine, Duration helper);

 private:
  struct LatencySum {
    Duration sum{};
    uint64_t count = 0;
  };
  static void count(LatencySum& total, Histogram& histogram, Duration latency);
  Standstill counted(const Standstill& still, StarvedTime& starved) const;

  WorkerMetrics& metrics_;
  const std::function<RunDelays()> run_delays_;
  StarvedTime engine_starved_;
  StarvedTime helper_starved_;
  CoreLoad load_;
  EngineWork work_;
  LatencySum ttft_;
  LatencySum itl_;
};

}  // namespace pdjob::worker
