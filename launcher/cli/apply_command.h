// `pdjob diff` and `pdjob apply`: what a changed job file would change in its running job, and that
// change, to its end.
#pragma once

#include <cstdint>

#include "launcher/plan/job_config.h"

namespace pdjob::launcher {

struct ApplyFlags {
  bool dry_run = false;  // As `pdjob diff`.
  bool no_wait = false;
  int64_t timeout_s = 1800;
};

// Returns the exit code (common/exit_code.h). kExitUsage: the file changes what a running job
// keeps. kExitNotPlaced: it does not fit, or another change is under way. kExitFailed: the job is
// not running, went back to its file before, or is not done in time.
int apply_to_job(const JobConfig& config, const ApplyFlags& flags);

}  // namespace pdjob::launcher
