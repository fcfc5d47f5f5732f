// What a plan says about engines of other makes: their exact command lines and what they leave
// open. Pure.
#pragma once

#include <cstddef>
#include <string>

#include "launcher/plan/job_config.h"
#include "launcher/plan/launch_plan.h"

namespace pdjob::launcher {

// The ports that one engine of another make takes on a node: the most of any. 0: there is none.
uint32_t ports_each(const JobConfig& config);

// Adds the command lines of such workers and what is worth a warning.
void plan_foreign_engines(const JobConfig& config, LaunchPlan& plan);

}  // namespace pdjob::launcher
