// NodeShare: one node, and what is left of it. It knows no groups. Value.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "launcher/placement/demand.h"
#include "launcher/placement/gpu_choice.h"
#include "launcher/placement/node.h"

namespace pdjob::launcher {

// "1 GPU", "2 GPUs".
std::string count_text(uint64_t count, const std::string& what);

// What a node lacks for one process. Zero: nothing.
struct Shortfall {
  uint64_t cores = 0;
  uint64_t gpus = 0;
  uint32_t gpu_percent = kWholeGpu;  // Of each of them.
  uint64_t memory_bytes = 0;

  bool none() const { return cores == 0 && gpus == 0 && memory_bytes == 0; }
  // "2 cores and 0.5 of a GPU"; empty for none.
  std::string text() const;
  friend bool operator==(const Shortfall&, const Shortfall&) = default;
};

// Why a process may not run on this node, however much it has: "is of cluster east". Empty: it may.
std::vector<std::string> refusals(const Node& node, const Demand& demand);

class NodeShare {
 public:
  explicit NodeShare(const Node& node) { resize(node); }

  // The node comes with another size; what was taken stays taken.
  void resize(const Node& node);
  const Node& node() const { return node_; }

  // May be negative: the node overcommits, or it shrank.
  int64_t cores_free() const { return static_cast<int64_t>(node_.cores) - cores_used_; }
  // Whole ones.
  uint64_t gpus_free() const { return gpus_free_; }
  // The most of them that are near each other (gpu_choice.h).
  uint64_t near_gpus_free() const { return near_gpus_free_; }
  // In the order of the node's GPUs, what is left of each: percent, at least 0.
  const std::vector<uint32_t>& gpu_parts_free() const { return gpu_parts_free_; }
  int64_t memory_free() const;
  // What other processes' own memory does not count against: a node that overcommits still has to
  // hold the files.
  int64_t memory_for_files() const {
    return static_cast<int64_t>(node_.memory_bytes) - file_bytes_;
  }
  bool has_file(const std::string& file) const { return files_.contains(file); }

  // However much it has: whether it is a node that the process may run on.
  bool accepted_by(const Demand& demand) const;
  // What is missing if nothing is promised twice.
  Shortfall shortfall(const Demand& demand) const;
  // What is missing by its own rule, which may allow overcommitment.
  Shortfall lack(const Demand& demand) const;
  // How many such processes fit, up to `enough`. With `overcommit`, by its own rule.
  uint64_t room(const Demand& demand, bool overcommit, uint64_t enough) const;

  // Takes a part here, with the GPUs that gpu_choice.h says. Requires: as many GPUs as demanded,
  // used or not.
  PlacePart take(const Demand& demand);
  // Takes a part that was chosen before.
  void take(const PlacePart& part, const Demand& demand);
  void release(const PlacePart& part, const Demand& demand);

 private:
  struct File {
    uint32_t uses = 0;
    uint64_t bytes = 0;
  };
  uint64_t file_bytes_to_add(const Demand& demand) const;
  // How many such processes' GPUs are free.
  uint64_t gpu_room(const Demand& demand) const;
  void count_free_gpus();
  std::vector<GpuState> gpu_states() const;

  Node node_;
  int64_t cores_used_ = 0;
  int64_t memory_used_ = 0;  // Without the files.
  int64_t file_bytes_ = 0;
  std::vector<uint32_t> gpu_parts_free_;
  uint64_t gpus_free_ = 0;
  uint64_t near_gpus_free_ = 0;
  std::map<std::string, uint32_t> gpu_used_;  // Percent.
  std::map<std::string, File> files_;
};

}  // namespace pdjob::launcher
