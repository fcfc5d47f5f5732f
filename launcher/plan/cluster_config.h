// ClusterConfig: the section `clusters` of a job file: the machines that a job may use. Value.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/config/config_reader.h"
#include "common/time.h"

namespace pdjob::launcher {

enum class ClusterKind {
  kLocal,   // The launcher's own machine.
  kAgents,  // Machines on which somebody started `pdjob agent`.
};

struct ClusterConfig {
  std::string name;
  ClusterKind kind = ClusterKind::kAgents;
  std::string host;  // Which address of a node its processes listen on; empty: see the docs.
  // Of agents:
  std::string listen;  // HOST:PORT where agents join.
  std::string key_file;
  uint32_t nodes = 1;  // A starting job waits for so many.
  Duration wait = std::chrono::minutes(1);
  Duration lease = std::chrono::seconds(5);
};

// Declares the keys of `clusters:`. Without the section: none, and the job runs on this machine.
void read_clusters(ConfigReader& in, std::vector<ClusterConfig>& clusters);

// True if the launcher's own machine may run workers.
bool runs_workers_here(const std::vector<ClusterConfig>& clusters);

// The address of this machine at which processes on other nodes reach it: that on which the first
// cluster of agents listens. "127.0.0.1" without such a cluster; empty: it cannot be told.
std::string address_for_nodes(const std::vector<ClusterConfig>& clusters);

}  // namespace pdjob::launcher
