// Makes the options of a launcher's JobRunner of the job's file, its plan, and what an earlier
// launcher left.
#pragma once

#include <string>
#include <vector>

#include "launcher/job_runner.h"
#include "launcher/plan/job_config.h"
#include "launcher/plan/launch_plan.h"
#include "launcher/run/ledger.h"

namespace pdjob::launcher {

// How the workers of this role of the model scale.
const GroupScaling& scaling_of(const JobConfig& config, net::Role role, const std::string& model);

// The groups of a plan, with the sizes of the job file.
std::vector<JobGroup> groups_of(const JobConfig& config, const LaunchPlan& plan);

// `adopts`: it goes on with the job of the ledger. `control_key`: as in JobRunnerOptions.
JobRunnerOptions runner_options(const JobConfig& config, const LaunchPlan& plan,
                                const JobLedger& ledger, bool adopts,
                                const std::string& control_key);

}  // namespace pdjob::launcher
