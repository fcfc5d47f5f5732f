// FleetFigures: what a simulated load showed of one job: latencies, goodput, use of the workers, KV
// traffic. Values and Pure.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "common/result.h"
#include "launcher/played/trace_world.h"

namespace pdjob::launcher {

// Seconds; 0 if there are no values.
struct Percentiles {
  double p50 = 0, p90 = 0, p99 = 0;
};
// The smallest value that at least such a share of all values does not exceed.
double percentile(const std::vector<double>& sorted, double share);
Percentiles percentiles_of(std::vector<double> values);

// "ttft=1s,itl=50ms", in any order, both.
Result<simulation::Slo> parse_slo(const std::string& option, const std::string& text);

// The workers of one role.
struct RoleFigures {
  uint32_t workers = 0;      // At most at one time.
  uint32_t workers_min = 0;  // At least.
  double busy = 0;           // Share of the time in which they computed, mean of the workers.
  double queued = 0;         // Requests that waited in all of them, mean over time.
  uint32_t queued_max = 0;
  double running = 0;        // The same of requests that ran.
  uint64_t kv_rows_max = 0;  // Tokens in their KV memory.
};

using Points = std::vector<std::pair<double, double>>;

struct FleetFigures {
  std::string name;                  // "2 prefill + 1..4 decode", "3 both, chunk 128"
  uint32_t chunk = 0;                // Of workers of both roles; 0: there are none.
  std::array<RoleFigures, 3> roles;  // prefill, decode, both
  uint64_t requests = 0;
  uint64_t served = 0;
  uint64_t refused = 0;  // Answered with an error.
  uint64_t good = 0;     // Served within the SLO.
  double seconds = 0;    // From the first request to the end of the last one.
  double offered = 0;    // Requests per second of the load.
  double goodput = 0;    // `good` per second of the load.
  Percentiles ttft;
  Percentiles itl;  // Of each request its mean.
  Percentiles gap;  // Of each request the longest time between two tokens.
  double prompt_tokens = 0, output_tokens = 0;  // Per second; of requests that were served.
  double reused = 0;                            // Share of the prompts' tokens that were kept.
  uint64_t kv_transfers = 0;
  double kv_tokens = 0;                // Moved between workers, per second.
  double worker_hours = 0;             // Those that start count, too.
  std::vector<std::string> decisions;  // The autoscaler's; whole lines, with their times.

  // For plots: x in seconds.
  Points ttft_shares, itl_shares;  // y: the share of requests that took at most x.
  std::array<Points, 3> busy_over_time, queued_over_time, workers_over_time;
  Points good_over_time;  // Share of the requests that came about then.

  // The most of each role; at one time there may have been fewer.
  uint32_t workers() const { return roles[0].workers + roles[1].workers + roles[2].workers; }
  double share() const {
    return requests == 0 ? 0 : static_cast<double>(good) / static_cast<double>(requests);
  }
};

// Requires: result is of the run.
FleetFigures figures_of(const simulation::TraceRun& run, const simulation::TraceResult& result,
                        const simulation::Slo& slo);

// The better of two by goodput; then by the p90 of TTFT.
bool better(const FleetFigures& one, const FleetFigures& other);

// "15 requests/s within the SLO with 2 prefill + 1 decode"
std::string verdict_of(const FleetFigures& figures);
// "Disaggregation gains 12 %: ..." `job`: the file's; `both`: as many workers of both roles.
std::string verdict(const FleetFigures& job, const FleetFigures& both);

}  // namespace pdjob::launcher
