// Node: a machine of a cluster, and what it offers. Value.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "launcher/placement/demand.h"
#include "launcher/placement/topology.h"

namespace pdjob::launcher {

inline constexpr size_t kClustersMax = 16;        // Of a job.
inline constexpr size_t kClusterNodesMax = 4096;  // That may join one cluster; beyond: refused.
// Of a job: this machine, and the nodes of its clusters.
inline constexpr size_t kNodesMax = 1 + kClustersMax * kClusterNodesMax;

struct Node {
  std::string name;
  std::string host;  // Its processes listen here.
  uint32_t cores = 0;
  std::string cores_bound;  // Why no more, as in common/os/machine_share.h; empty: it has no more.
  uint64_t memory_bytes = 0;
  std::string memory_bound;                   // The same.
  std::vector<std::string> gpus;              // Names as in CUDA_VISIBLE_DEVICES.
  GpuParts gpu_parts = {};                    // Of which it has no whole one.
  std::string cluster = "local";              // As named in the job file.
  std::map<std::string, std::string> labels;  // What groups may ask for.
  bool routers_only = false;                  // Workers are placed on other nodes.
  // Its cores, its GPUs, and its memory beside the models' files may be promised more than once.
  // That is slow, not wrong. It is so on the launcher's own machine, where a job is tried out.
  bool overcommits = false;
  NodeTopology topology;

  friend bool operator==(const Node&, const Node&) = default;
};

// The percent of this GPU that a holder of these parts has.
uint32_t percent_of(const GpuParts& parts, const std::string& gpu);
// The same of these GPUs together; 150: one and a half.
uint64_t percent_of_all(const std::vector<std::string>& gpus, const GpuParts& parts);

// "1 core (CPU quota of cgroup /x)"; without a bound only "1 core".
std::string cores_text(const Node& node);
// "4.0 GiB of memory (memory.max of cgroup /x)"
std::string memory_text(const Node& node);
// "4.0 GiB"
std::string gib_text(uint64_t bytes);
// A line for each node that offers less than its machine has: "node a: 1 core (affinity), 4.0 GiB
// of memory".
std::string bounds_text(const std::vector<Node>& nodes);

}  // namespace pdjob::launcher
