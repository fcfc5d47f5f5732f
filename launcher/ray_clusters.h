// Makes the clusters of kind `ray` of a job. Loop-bound.
#pragma once

#include <memory>

#include "common/result.h"
#include "launcher/clusters/cluster.h"
#include "launcher/clusters/log_folder.h"
#include "launcher/plan/job_config.h"
#include "net/loop/event_loop.h"

namespace pdjob::launcher {

// All of the job's Ray clusters as one; null: it has none. The shim's output goes to a log of its
// own; without logs, nowhere. The loop must outlive it. kUnavailable: an address cannot be used.
Result<std::unique_ptr<Cluster>> open_ray(net::EventLoop& loop, const JobConfig& config,
                                          LogFolder* logs);

}  // namespace pdjob::launcher
