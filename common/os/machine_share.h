// The cores and the memory of this machine that a process may use: the least of what the machine
// has, the affinity of the calling thread, and the limits of its control group and of all groups
// above that one (cgroup v1 and v2). The limits can change, and a share tells what they were when
// it was read.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace pdjob {

// Value.
struct MachineShare {
  double cpus = 1;          // Of CPU time per time; a quota may be a fraction.
  std::string cores_bound;  // What allows no more: "CPU quota of cgroup /x". Printable. Empty:
                            // it is all that the machine has.
  uint64_t memory_bytes = 0;
  std::string memory_bound;  // The same.

  // At least 1. A part of a core is no core: the threads of a step wait for each other, so one that
  // its quota stops holds up all.
  uint32_t cores() const { return cpus < 1 ? 1 : static_cast<uint32_t>(cpus); }

  // Lower the share, and keep `by` as the reason. Nothing changes unless the amount is smaller than
  // the share's. 0: no bound.
  void bound_cores(double most, std::string_view by);
  void bound_memory(uint64_t most, std::string_view by);
};

// A file that cannot be read bounds nothing. Thread-safe.
MachineShare machine_share();

// A folder with the limits of a control group that holds the process.
struct CgroupFolder {
  std::string path;
  std::string group;  // Its name for people.
  friend bool operator==(const CgroupFolder&, const CgroupFolder&) = default;
};

// The folders of the process's groups, each before those above it. `cgroup` and `mountinfo` are the
// texts of /proc/self/cgroup and /proc/self/mountinfo. A mount that shows another part of the tree
// is taken for the process's own group, because runtimes of containers make such mounts. Pure.
std::vector<CgroupFolder> cgroup_folders(std::string_view cgroup, std::string_view mountinfo);

// Lowers `share` by the limits of the process's groups. Each path starts at `root`, which tests set
// to a folder of their own. Thread-safe.
void bound_by_cgroups(MachineShare& share, const std::string& root = "");

}  // namespace pdjob
