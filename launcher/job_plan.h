// The plan of a job as this machine can make it: with the sizes of model files that are here, and
// what is missing here.
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

// kNo: nothing that the job file names is run. kYes: NCCL's library is opened, which runs code of
// it.
enum class PlanProbe { kNo, kYes };

// As make_plan(), with warnings of programs and files that are missing here.
Result<LaunchPlan> plan_on(const JobConfig& config, const std::vector<Node>& nodes, PlanProbe probe,
                           NodesOfPlan which = NodesOfPlan::kAll);

bool has_foreign_router(const JobConfig& config);
// The job's router cannot show a key to its workers, so they need none.
bool recipe_without_key(const JobConfig& config);

// `config` must outlive it.
NodeWaiting node_waiting(const JobConfig& config, std::function<void(const std::string&)> progress);

// Of a job that could not be placed.
int exit_code_of(const Error& error);
// Prints the error, and returns the code.
int refuse_job(int exit_code, const Error& error);

// This machine, as the job would use it.
Node node_here(const JobConfig& config);
// The nodes of a text (placement/assumed_nodes.h), as the job would have them. The launcher's
// machine is added unless it is one of them. kInvalidArgument: the message is whole lines.
Result<std::vector<Node>> nodes_assumed(const JobConfig& config, const std::string& source,
                                        const std::string& text);
// The served names of models whose files are not here, so that a plan cannot count their memory.
std::vector<std::string> unknown_models(const JobConfig& config);

}  // namespace pdjob::launcher
