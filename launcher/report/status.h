// The status of a job as its launcher sees it, for people and for machines. Pure.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "launcher/job/job.h"
#include "launcher/plan/launch_plan.h"

namespace pdjob::launcher {

// Of a worker, as launcher/scaling/stragglers.h says.
using Slowness = std::function<double(std::string_view worker)>;

struct JobView {
  const LaunchPlan& plan;
  const Job& job;
  int64_t launcher_pid = 0;
  std::string url;  // The address that clients use.
  Instant now{};
  Slowness slowness = [](std::string_view) { return 0.0; };
};

// As the routers' /health: "ready" only while a request could be served; otherwise "unavailable".
std::string job_state_text(const Job& job);
bool serves(const Job& job);

std::string status_text(const JobView& view);
std::string status_json(const JobView& view);
// One line while the job is not ready: "2 of 3 ready, 1 starting".
std::string progress_line(const Job& job);

// The same facts as Prometheus text.
std::string job_metrics(const JobView& view);

}  // namespace pdjob::launcher
