// Node: a machine of a cluster, and what it offers. Value.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace pdjob::launcher {

struct Node {
  std::string name;
  std::string host;  // Its processes listen here.
  uint32_t cores = 0;
  uint64_t memory_bytes = 0;
  std::vector<std::string> gpus;              // Names as in CUDA_VISIBLE_DEVICES.
  std::string cluster = "local";              // As named in the job file.
  std::map<std::string, std::string> labels;  // What groups may ask for.
  bool routers_only = false;                  // Workers are placed on other nodes.
  // Its cores, its GPUs, and its memory beside the models' files may be promised more than once.
  // That is slow, not wrong. It is so on the launcher's own machine, where a job is tried out.
  bool overcommits = false;
  friend bool operator==(const Node&, const Node&) = default;
};

}  // namespace pdjob::launcher
