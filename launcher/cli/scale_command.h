// `pdjob scale`: gives a running job's groups new sizes, and waits until they serve.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace pdjob::launcher {

struct ScaleFlags {
  std::vector<std::string> sizes;  // "decode=2"; empty: only show the sizes.
  bool no_wait = false;
  int64_t timeout_s = 600;
};

// Returns the exit code (common/exit_code.h): kExitUsage for wrong sizes, kExitNotPlaced for sizes
// that do not fit, kExitFailed if the job is not running or does not get its size in time.
int scale_job(const std::string& state_dir, const std::string& job, const ScaleFlags& flags);

}  // namespace pdjob::launcher
