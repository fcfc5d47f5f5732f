// Which GPU of its node each worker gets. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "common/result.h"
#include "launcher/cluster.h"
#include "launcher/job_config.h"
#include "launcher/launch_plan.h"

namespace pdjob::launcher {

// The words of CUDA_VISIBLE_DEVICES up to the first that hides the rest, as CUDA has it.
std::vector<std::string> gpus_of_setting(std::string_view cuda_visible_devices);

// Gives each worker that wants a GPU the one of its node that fewest have, and warns where some
// share one or there is none. kUnavailable: they would share one, and NCCL refuses that.
Status share_gpus(const JobConfig& config, const std::vector<Node>& nodes, LaunchPlan& plan);

}  // namespace pdjob::launcher
