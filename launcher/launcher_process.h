// The launcher as a process: the shell around the Job core. It gives the core what happened (exits,
// control messages, probe results, signals, time) and does what the core decides.
#pragma once

#include "launcher/job_config.h"

namespace pdjob::launcher {

// Runs the job until it is stopped or has failed. The exit code (common/exit_code.h).
int run_job(const JobConfig& config);

// The plan alone, for `pdjob plan`: text or JSON on stdout.
enum class PlanForm { kText, kJson };
int show_plan(const JobConfig& config, PlanForm form);

}  // namespace pdjob::launcher
