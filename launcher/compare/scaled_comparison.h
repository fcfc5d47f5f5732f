// The Comparison of a job that scales by itself. Its autoscaler is played. Beside it stands the
// smallest fleet of fixed size that serves as many requests within the SLO. Pure, apart from the
// time that it takes.
#pragma once

#include <functional>
#include <string>

#include "launcher/compare/comparison.h"

namespace pdjob::launcher {

// Calls `progress` before each fleet. Requires: the job is launched (trace_world.h).
Comparison compare_scaled(const SimulationAsked& asked,
                          const std::function<void(const std::string& fleet)>& progress);

// "Scaling takes 38 % less worker-hours: ..." `fixed` may be null.
std::string scaling_verdict(const FleetFigures& job, const FleetFigures* fixed);

}  // namespace pdjob::launcher
