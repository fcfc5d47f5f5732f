// NodeTopology: which of a node's devices are near each other, and how large its GPUs are. All of
// it may be unknown. Value.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace pdjob::launcher {

inline constexpr size_t kNumaNodesMax = 256;  // Of a node.
inline constexpr size_t kNicsOfGpuMax = 16;
inline constexpr size_t kNicNameBytesMax = 32;
inline constexpr size_t kCpuListBytesMax = 1024;
inline constexpr uint32_t kUnknownGroup = UINT32_MAX;

struct GpuFacts {
  uint32_t numa = kUnknownGroup;    // Number of its NUMA node.
  uint32_t island = kUnknownGroup;  // GPUs with the same number are joined by NVLink.
  std::vector<std::string> nics;    // RDMA devices that are nearest by PCIe distance: "mlx5_0".
  friend bool operator==(const GpuFacts&, const GpuFacts&) = default;
};

struct NumaFacts {
  uint32_t number = 0;
  std::string cpus;  // Those that pdjob may use, as in common/config/number_list.h.
  friend bool operator==(const NumaFacts&, const NumaFacts&) = default;
};

struct NodeTopology {
  std::vector<GpuFacts> gpus;     // In the order of Node::gpus; or empty, if nothing is known.
  std::vector<NumaFacts> numa;    // In ascending order.
  uint64_t gpu_memory_bytes = 0;  // Of its largest GPU.
  friend bool operator==(const NodeTopology&, const NodeTopology&) = default;
};

// Names of NICs become a part of command lines.
inline bool is_nic_name(std::string_view name) {
  return !name.empty() && name.size() <= kNicNameBytesMax &&
         name.find_first_not_of(
             "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-") ==
             std::string_view::npos;
}

}  // namespace pdjob::launcher
