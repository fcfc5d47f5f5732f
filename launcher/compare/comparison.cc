#include "launcher/compare/comparison.h"

#include <algorithm>
#include <utility>

#include "common/check.h"
#include "launcher/compare/scaled_comparison.h"

namespace pdjob::launcher {
namespace {

// So many points over the load; a short one still has a few.
constexpr int64_t kSamples = 240;
constexpr Duration kSampleMin = std::chrono::milliseconds(20);

}  // namespace

FleetFigures simulated(const SimulationAsked& asked, const simulation::TraceJob& job, double rate) {
  simulation::TraceRun run{.job = job,
                           .trace = asked.load,
                           .scale = {.rate = rate},
                           .patience = std::chrono::minutes(10) + 20 * asked.slo.ttft,
                           .seed = asked.seed};
  run.sample_every = std::max(asked.load.back().at / kSamples, kSampleMin);
  return figures_of(run, simulation::play(run), asked.slo);
}

Comparison comparison_of(const SimulationAsked& asked) {
  return {.source = asked.source,
          .load = asked.load_text,
          .model = asked.model_text,
          .slo = asked.slo,
          .seed = asked.seed,
          .notes = asked.job.notes,
          .job = {},
          .fixed = {},
          .both = {}};
}

std::string Comparison::headline() const {
  if (scales()) {
    return scaling_verdict(job, other());
  }
  if (disaggregated()) {
    return verdict(job, best_both());
  }
  return "The job is not disaggregated; with chunk " + std::to_string(best_both().chunk) +
         " it does best: " + verdict_of(best_both()) + ", and as it is " + verdict_of(job);
}

Comparison compare(const SimulationAsked& asked,
                   const std::function<void(const std::string& fleet)>& progress) {
  PDJOB_CHECK(!asked.load.empty());
  Comparison found = comparison_of(asked);
  const simulation::TraceJob& job = asked.job.job;
  PDJOB_CHECK(!job.launched);
  progress("the job");
  found.job = simulated(asked, job);
  for (const uint32_t chunk : chunks_to_try(job)) {
    if (chunk == found.job.chunk) {
      found.both.push_back(found.job);
      continue;
    }
    progress(std::to_string(job.prefill + job.decode + job.both) +
             " workers of both roles, chunk " + std::to_string(chunk));
    found.both.push_back(simulated(asked, colocated(job, chunk)));
  }
  for (size_t i = 1; i < found.both.size(); ++i) {
    found.best = better(found.both[i], found.both[found.best]) ? i : found.best;
  }
  return found;
}

}  // namespace pdjob::launcher
