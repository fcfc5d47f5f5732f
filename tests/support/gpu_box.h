// A made-up machine: eight GPUs in two NVLink islands, one for each of two NUMA nodes, and a NIC
// beside each GPU.
#pragma once

#include <string>

#include "launcher/placement/node.h"

namespace pdjob::launcher {

inline Node gpu_box(const std::string& name) {
  Node node{.name = name, .host = "10.0.0.1", .cores = 96, .memory_bytes = uint64_t{1} << 40};
  for (uint32_t gpu = 0; gpu < 8; ++gpu) {
    const std::string number = std::to_string(gpu);
    node.gpus.push_back(number);
    node.topology.gpus.push_back({.numa = gpu / 4, .island = gpu / 4, .nics = {"mlx5_" + number}});
  }
  node.topology.numa = {{0, "0-23,48-71"}, {1, "24-47,72-95"}};
  return node;
}

}  // namespace pdjob::launcher
