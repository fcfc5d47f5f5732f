// Placement: which node a process runs on, by what the nodes have and what already runs there.
// Pure.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "launcher/plan/node.h"

namespace pdjob::launcher {

// The part of a node that one process needs.
struct Demand {
  uint32_t cores = 0;  // Engine threads; 0 for a router, which needs little.
  uint32_t gpus = 0;
  friend bool operator==(const Demand&, const Demand&) = default;
};

// Where a process runs. Its GPUs are the only ones that it sees; none: all of them.
struct Place {
  std::string node;
  std::vector<std::string> gpus;
  friend bool operator==(const Place&, const Place&) = default;
};

class Placement {
 public:
  explicit Placement(const std::vector<Node>& nodes);

  // A node that is known already gets its new size.
  void add(const Node& node);
  void remove(const std::string& node);
  bool has(const std::string& node) const { return shares_.contains(node); }

  // Takes the place with the most free cores, and its least used GPUs. Cores and GPUs may be
  // promised more than once: that is slow, not wrong. Empty: no node has so many GPUs at all.
  std::optional<Place> take(const Demand& demand);
  // Takes a place that was chosen before. Ignored if the node is unknown.
  void take(const Place& place, const Demand& demand);
  void release(const Place& place, const Demand& demand);

 private:
  struct Share {
    Node node;
    uint32_t order = 0;  // Of joining: decides ties.
    uint64_t cores_used = 0;
    std::map<std::string, uint32_t> gpu_uses;
    int64_t cores_free() const {
      return static_cast<int64_t>(node.cores) - static_cast<int64_t>(cores_used);
    }
  };

  std::map<std::string, Share> shares_;
  uint32_t joined_ = 0;
};

}  // namespace pdjob::launcher
