// /proc/PID/stat (proc(5)): what the kernel says of one process, or of one thread in its task
// folder.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace pdjob {

struct ProcessStat {
  char state = 0;  // 'R': it runs, or waits for a core; 'Z': only its exit status is left.
  int64_t parent = 0;
  uint32_t flags = 0;  // PF_* of the kernel.
};

// `folder` is /proc/PID, or /proc/PID/task/TID. nullopt: it is gone. Reads a file in memory.
// Thread-safe.
std::optional<ProcessStat> read_process_stat(const std::string& folder);

}  // namespace pdjob
