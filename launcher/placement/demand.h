// Demand: what one process needs of a node, and which nodes it accepts. Place: where it runs, in
// one part or more, each on a node of its own. Values.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace pdjob::launcher {

// How a group's workers share the nodes. Both prefer nodes and clusters with other workers of the
// same model, because KV moves between them.
enum class Arrange {
  kSpread,  // On many nodes, so that a lost node takes few of them.
  kPack,    // On few nodes.
};

// What of a worker should be near each other.
enum class Near {
  kNothing,  // It takes GPUs in their order.
  kCores,    // Its GPUs, and its cores and memory near them.
  kAll,      // Its NICs, too. Then its KV may go over these alone.
};

inline constexpr uint32_t kWholeGpu = 100;

// By name of the GPU, the percent of it: less than all, and more than nothing.
using GpuParts = std::map<std::string, uint32_t>;

// Workers with equal demands are one group.
struct Demand {
  // An engine over several nodes has as many parts. All below is of one part.
  uint32_t parts = 1;
  uint32_t cores = 0;  // Engine threads; 0 for a router, which needs little.
  uint32_t gpus = 0;
  uint32_t gpu_percent = kWholeGpu;  // Of each of them; less only of a single one.
  bool lends = false;         // Its engine and others of the node lend each other idle threads.
  uint64_t memory_bytes = 0;  // Of its own: KV and buffers.
  std::string file;           // The model's file. A node's processes map it together, once.
  uint64_t file_bytes = 0;
  std::string role;                           // Distinguishes the groups of one model.
  std::string model;                          // KV moves between its groups; empty: no KV.
  std::vector<std::string> clusters;          // Their names; empty: any.
  std::map<std::string, std::string> labels;  // Each must be a label of the node.
  Arrange arrange = Arrange::kSpread;
  Near near = Near::kAll;
  bool shares_gpu() const { return gpus > 0 && gpu_percent < kWholeGpu; }
  friend bool operator==(const Demand&, const Demand&) = default;
};

// The GPUs of a part are the only ones that it sees; none: all of them.
struct PlacePart {
  std::string node;
  std::vector<std::string> gpus;
  friend bool operator==(const PlacePart&, const PlacePart&) = default;
};

// The first part is that of the process which the launcher and routers talk to. Without a node
// there is no place.
struct Place {
  std::string node;
  std::vector<std::string> gpus;
  std::vector<PlacePart> more = {};  // On other nodes, each with the same demand.

  std::vector<PlacePart> parts() const;
  // The first part becomes that of the place if it has none yet.
  void add(PlacePart part);
  bool has_part_on(const std::string& of_node) const;
  friend bool operator==(const Place&, const Place&) = default;
};

}  // namespace pdjob::launcher
