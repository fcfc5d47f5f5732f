// The plan of a job on the nodes that it has, with all that can be said before something starts.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "common/result.h"
#include "launcher/job_clusters.h"
#include "launcher/placement/node.h"
#include "launcher/plan/job_config.h"
#include "launcher/plan/launch_plan.h"

namespace pdjob::launcher {

bool has_foreign_router(const JobConfig& config);
// The job's router cannot show a key to its workers, so they need none.
bool recipe_without_key(const JobConfig& config);

// kNo: nothing that the job file names is run. kYes: Ray's Python and NCCL's library are.
enum class PlanProbe { kNo, kYes };

// With warnings of what would keep the job from starting there. kUnavailable: it does not fit yet.
Result<LaunchPlan> plan_on(const JobConfig& config, const std::vector<Node>& nodes,
                           PlanProbe probe);
NodeWaiting node_waiting(const JobConfig& config, std::function<void(const std::string&)> progress);

// Of a job that could not be placed, and why (common/exit_code.h).
int exit_code_of(const Error& error);
int refuse(int exit_code, const Error& error);

// Prints only the plan, for `pdjob plan`: text or JSON on stdout.
enum class PlanForm { kText, kJson };
int show_plan(const JobConfig& config, PlanForm form, PlanProbe probe);

}  // namespace pdjob::launcher
