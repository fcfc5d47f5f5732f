// `pdjob stop`: ends a running job of this machine as its own Ctrl-C would, and waits for its end.
#pragma once

#include <string>

#include "launcher/plan/job_config.h"

namespace pdjob::launcher {

enum class StopHow {
  kDrain,  // Requests under way may finish.
  kNow,
};

// Returns the exit code (common/exit_code.h).
int stop_job(const std::string& state_dir, const std::string& job, StopHow how,
             const Places& places);

}  // namespace pdjob::launcher
