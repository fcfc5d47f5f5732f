// What a plan says about engines of other makes: their exact command lines and what they leave
// open. Pure.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "common/result.h"
#include "launcher/plan/job_config.h"
#include "launcher/plan/launch_plan.h"

namespace pdjob::launcher {

// The ports that one engine of another make takes on a node: the most of any. 0: there is none.
uint32_t ports_each(const JobConfig& config);

// Adds the command lines of such workers and what is worth a warning. `sizes`: of each model.
// kUnavailable: an engine cannot be spread as its sizes say.
Status plan_foreign_engines(const JobConfig& config, const std::vector<ModelSize>& sizes,
                            LaunchPlan& plan);

}  // namespace pdjob::launcher
