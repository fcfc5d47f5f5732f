// What a job of a pool needs of which nodes: its plan (plan/launch_plan.h) on the nodes that are
// free, as one share of each node. The plan counts the files of models if they are on this machine.
#pragma once

#include <string>
#include <vector>

#include "common/result.h"
#include "launcher/placement/node.h"
#include "launcher/plan/job_config.h"
#include "launcher/pool/pool_job.h"

namespace pdjob::launcher {

// The settings that give the job its pool in place of the clusters of its file: `nodes` agents join
// at `listen` with the key of that file.
std::vector<std::string> pool_settings(const std::string& listen, const std::string& key_file,
                                       uint32_t nodes);

// Reads a job file for a pool. kInvalidArgument: the message is whole lines.
Result<JobConfig> read_pool_job(const std::string& source, const std::string& text,
                                const Places& places);

// What a submitted job is, without who submitted it. kInvalidArgument: a pool cannot run it.
Result<PoolJobOrder> order_of(const JobConfig& config);

// kUnavailable: there is no room.
Result<std::vector<Share>> shares_of(const JobConfig& config, std::vector<Node> free);

}  // namespace pdjob::launcher
