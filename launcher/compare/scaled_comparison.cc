#include "launcher/compare/scaled_comparison.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "common/check.h"
#include "launcher/compare/report_text.h"
#include "launcher/compare/tuning.h"

namespace pdjob::launcher {
namespace {

// A job may do with few workers what no small fleet of fixed size can.
constexpr uint32_t kFixedWorkersMin = 8;

}  // namespace

Comparison compare_scaled(const SimulationAsked& asked,
                          const std::function<void(const std::string&)>& progress) {
  PDJOB_CHECK(asked.job.job.launched);
  Comparison found = comparison_of(asked);
  progress("the job, which scales");
  found.job = simulated(asked, asked.job.job);
  if (found.job.good == 0) {
    return found;
  }
  TuningAsked tuning{.simulation = asked,
                     .search = search_options(asked.job.job),
                     .describes = TuningAsked::Describes::kBest};
  tuning.search.workers_max = std::max(2 * found.job.workers(), kFixedWorkersMin);
  tuning.search.share = found.job.share();
  tuning.search.margin = 1;
  tuning.search.sequences.clear();  // The job keeps its own.
  found.fixed = tune(tuning, progress).best;
  return found;
}

std::string scaling_verdict(const FleetFigures& job, const FleetFigures* fixed) {
  char hours[64];
  std::snprintf(hours, sizeof hours, "%.3g worker-hours", job.worker_hours);
  const std::string own =
      percent_text(job.share()) + " within the SLO with " + job.name + " and " + hours;
  if (job.good == 0) {
    return "Scaling serves no request within the SLO: more workers, a faster model, or more time";
  }
  if (fixed == nullptr) {
    return "Scaling serves more than any fleet of fixed size that was tried: " + own;
  }
  const double less = 1 - job.worker_hours / std::max(fixed->worker_hours, 1e-9);
  std::snprintf(hours, sizeof hours, "%.3g", fixed->worker_hours);
  constexpr double kSame = 0.01;
  return "Scaling " +
         (std::abs(less) < kSame ? std::string("takes as many worker-hours")
                                 : "takes " + percent_text(std::abs(less)) +
                                       (less > 0 ? " less" : " more") + " worker-hours") +
         " than the smallest fleet of fixed size that serves as many: " + own + "; " + fixed->name +
         " takes " + hours;
}

}  // namespace pdjob::launcher
