// What a machine's files say to `pdjob doctor`: those below /sys, /proc and /dev. Paths start at
// `root`, which tests set to a folder of their own. What cannot be read stays as it is by default.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace pdjob::launcher {

struct RdmaDevice {
  std::string name;
  bool active = false;  // Its first port.
  friend bool operator==(const RdmaDevice&, const RdmaDevice&) = default;
};

// Value.
struct MachineFiles {
  size_t gpus_on_bus = 0;  // NVIDIA's GPUs by their PCI numbers.
  size_t gpus_usable = 0;  // Those that this process may open.
  std::string gpu_driver;  // Its version; empty: no driver is loaded.
  std::vector<std::string> gpu_models;
  std::vector<RdmaDevice> rdma;
  size_t rdma_usable = 0;  // Files in /dev/infiniband by which devices are used.
  // Limits of this process, the highest that it may set. Nothing: unlimited.
  std::optional<uint64_t> locked_bytes;
  std::optional<uint64_t> files;
  std::set<uint16_t> ports_taken;       // TCP ports on which something listens.
  uint16_t passing_port_first = 32768;  // The kernel takes ports of connections from here on,
  uint16_t passing_port_last = 60999;   // up to here.
};

MachineFiles read_machine_files(const std::string& root = "");

}  // namespace pdjob::launcher
