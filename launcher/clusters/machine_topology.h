// Reads what is near the GPUs of a machine: the kernel's files below /sys and /proc, and the table
// of NVIDIA's driver. What is not certain stays unknown.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "common/config/number_list.h"
#include "launcher/placement/topology.h"

namespace pdjob::launcher {

struct MachineFacts {
  std::string root;               // Each path starts here. Empty, but for tests.
  std::vector<std::string> gpus;  // As in CUDA_VISIBLE_DEVICES.
  // CUDA numbers GPUs by their PCI addresses even if their models differ.
  bool numbered_by_address = false;
  NumberList cpus;           // Those that pdjob may use.
  std::string driver_table;  // As nvlink_islands() takes it. Empty: unknown.
};

// How many GPUs this process may open.
size_t gpu_device_files(const std::string& root = "");

// An RDMA device counts if pdjob may open it and its first port is active. It is nearest to a GPU
// if it shares the most PCI bridges with it, or else its root complex, or else its NUMA node. A
// machine whose devices are all equally far from a GPU has no nearest ones. Empty: nothing is
// known.
NodeTopology read_topology(const MachineFacts& facts);

// `list`: what `nvidia-smi --query-gpu=memory.total --format=csv,noheader,nounits` prints, a number
// of MiB for each GPU. Returns the bytes of the largest; 0: it does not tell.
uint64_t largest_gpu_memory(std::string_view list);

}  // namespace pdjob::launcher
