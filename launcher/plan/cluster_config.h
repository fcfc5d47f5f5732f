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
  kRay,     // Nodes of a Ray cluster, on which we start `pdjob agent`.
};

// Keys of kind ray. The first such cluster is the home, which the others, its guests, join.
struct RayConfig {
  // For the home:
  std::string address;  // Of its control store: HOST:PORT.
  // For a guest:
  std::string dashboard;        // "http://HOST:PORT"
  std::string home_token_file;  // On the guest's nodes.
  // For both:
  std::string python = "python3";  // That has Ray: here for the home, on its nodes for a guest.
  std::string program;             // pdjob on the nodes; empty: where it is here.
  std::string token_file;          // On this machine.
  uint32_t nodes_min = 0;          // 0: all.
  uint32_t gpus = 0;               // Of each node.
};

struct ClusterConfig {
  std::string name;
  ClusterKind kind = ClusterKind::kAgents;
  // For Ray: what is taken on each node. For local: the most that the job may use; 0: all.
  uint32_t cpus = 0;
  uint64_t memory_bytes = 0;  // For Ray, 0: it is not asked for any.
  std::string host;  // Which address of a node its processes listen on; empty: see the docs.
  // For agents and Ray:
  std::string listen;  // HOST:PORT where agents join.
  std::string key_file;
  uint32_t nodes = 1;  // A starting job waits for so many.
  Duration wait = std::chrono::minutes(1);
  Duration lease = std::chrono::seconds(5);
  RayConfig ray;

  // How many nodes a starting job waits for.
  uint32_t nodes_awaited() const {
    const uint32_t remote = kind == ClusterKind::kRay && ray.nodes_min > 0 ? ray.nodes_min : nodes;
    return kind == ClusterKind::kLocal ? 0 : remote;
  }
};

// Declares the keys of `clusters:`. Without the section: none, and the job runs on this machine.
void read_clusters(ConfigReader& in, std::vector<ClusterConfig>& clusters);

// The address of this machine at which processes on other nodes reach it: that on which the first
// cluster of agents listens. "127.0.0.1" without such a cluster; empty: it cannot be told.
std::string address_for_nodes(const std::vector<ClusterConfig>& clusters);

}  // namespace pdjob::launcher
