// The nodes that recipes of vLLM are written for, by the names that they have there. Value; the
// functions are Pure.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace pdjob::launcher {

struct Hardware {
  std::string_view name;    // "h200"
  std::string_view family;  // "hopper"; a key of `hardware_overrides`.
  std::string_view brand;   // "nvidia"; the same, where a recipe has no key of the family.
  uint32_t gpus = 8;        // Of a node.
  uint64_t gpu_gb = 0;      // Memory of one GPU.
  // The nodes share one NVLink domain.
  bool nvlink_across_nodes = false;
};

// Null: unknown.
const Hardware* find_hardware(std::string_view name);
std::string hardware_names();  // "h100, h200, ..."

// True if a key of `hardware_overrides` means hardware, also such as pdjob makes no jobs for.
bool is_hardware_key(std::string_view key);

}  // namespace pdjob::launcher
