// The clusters of a job: makes them as the job file says, and waits for the nodes that a starting
// job wants. Loop-bound.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "common/result.h"
#include "launcher/clusters/cluster.h"
#include "launcher/clusters/log_folder.h"
#include "launcher/plan/job_config.h"
#include "net/loop/event_loop.h"

namespace pdjob::launcher {

// All of the job's clusters as one. Without the section `clusters`: this machine. The logs and the
// loop must outlive it. kInvalidArgument, kUnavailable: a key file cannot be used, or an address.
Result<std::unique_ptr<Cluster>> open_clusters(net::EventLoop& loop, const JobConfig& config,
                                               LogFolder& logs);

// Runs the loop until each cluster has the nodes that it must have. kTimeout names what is short.
// kCancelled: a signal came first.
Status wait_for_nodes(net::EventLoop& loop, Cluster& cluster, const JobConfig& config,
                      const std::function<void(const std::string&)>& progress);

// The nodes that the job would have if it started now. It asks the agents, and lets them go.
Result<std::vector<Node>> nodes_for_plan(net::EventLoop& loop, const JobConfig& config,
                                         const std::function<void(const std::string&)>& progress);

// What is short, one sentence per cluster; empty: nothing.
std::string missing_nodes(const std::vector<ClusterConfig>& clusters,
                          const std::vector<Node>& nodes);

}  // namespace pdjob::launcher
