// What a plan says about engines of other makes: their exact command lines and what they leave
// open. Pure.
#pragma once

#include <cstddef>
#include <string>

#include "launcher/plan/job_config.h"
#include "launcher/plan/launch_plan.h"

namespace pdjob::launcher {

// Its number among the job's workers with engines of other makes, from 0 on. Their engines start
// at different ports of the band. A worker that is not in the plan is 0.
size_t foreign_slot(const JobConfig& config, const std::string& worker);

// Adds the command lines of such workers and what is worth a warning.
void plan_foreign_engines(const JobConfig& config, LaunchPlan& plan);

}  // namespace pdjob::launcher
