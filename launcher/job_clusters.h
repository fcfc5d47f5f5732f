// The clusters of a job: makes them as the job file says, and waits for the nodes that a starting
// job wants. Loop-bound.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/result.h"
#include "common/time.h"
#include "launcher/clusters/cluster.h"
#include "launcher/job_folder.h"
#include "launcher/job_run.h"
#include "launcher/plan/job_config.h"
#include "launcher/run/local_agent.h"
#include "net/loop/event_loop.h"

namespace pdjob::launcher {

// All of the job's clusters as one. Without the section `clusters`: this machine.
struct JobClusters {
  std::unique_ptr<LocalAgent> agent;  // If processes here may outlive the launcher.
  // The job has ended, and what runs stays for so long. Runs the loop until all agents have heard
  // it, for at most 5 s: an agent that finds the connection closed first would end everything.
  void leave_warm(net::EventLoop& loop, Duration time) const;

  std::unique_ptr<Cluster> cluster;  // Ends first: it says goodbye to the agent.
};

// Runs the loop while another job has the agents that this one wants; `progress` is told. All but
// it must outlive the clusters. kInvalidArgument, kUnavailable: a key file cannot be used, or an
// address. kTimeout: the other job had the agents for too long. kCancelled: a signal came.
Result<JobClusters> open_clusters(net::EventLoop& loop, const JobConfig& config, JobFolder& folder,
                                  JobRun& run,
                                  const std::function<void(const std::string&)>& progress);

// Where the local agent logs what its processes write, in the job's folder of logs.
inline constexpr const char* kLocalLogs = "local";

// How a job that starts waits for its nodes.
struct NodeWaiting {
  // Says whether the job fits on these nodes. kUnavailable: not yet, and why.
  std::function<Status(const std::vector<Node>&)> fits;
  std::function<void(const std::string&)> progress;  // For people.
  bool local_agent = false;      // This machine's agent must join, if the job has one.
  std::optional<Instant> since;  // When the waiting began; default: now.
};

// Runs the loop until each cluster has the nodes that it must have, and the job fits. kTimeout
// names what is short. kCancelled: a signal came first. Without clusters of agents it does not
// wait.
Status wait_for_nodes(net::EventLoop& loop, Cluster& cluster, const JobConfig& config,
                      const NodeWaiting& waiting);

// The launcher's machine as a node of the job. kInvalidArgument: it lacks the address that the job
// file names.
Result<Node> local_node(const JobConfig& config);

// The nodes that the job would have if it started now. It asks the agents, and lets them go.
Result<std::vector<Node>> nodes_for_plan(net::EventLoop& loop, const JobConfig& config,
                                         const NodeWaiting& waiting);

// Some of the job's processes may run on other machines.
bool has_remote_nodes(const JobLedger& ledger);

// What is short, one sentence per cluster; empty: nothing.
std::string missing_nodes(const std::vector<ClusterConfig>& clusters,
                          const std::vector<Node>& nodes);

}  // namespace pdjob::launcher
