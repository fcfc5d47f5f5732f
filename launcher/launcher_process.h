// The launcher as a process: the shell around the Job core. It passes events to the core (exits,
// control messages, probe results, signals, time) and executes the core's decisions.
#pragma once

#include "launcher/plan/job_config.h"

namespace pdjob::launcher {

// Runs the job until it is stopped or fails. Returns the exit code (common/exit_code.h). If an
// earlier launcher left processes of this job, it goes on with them.
//
// kStop, kStopNow: it only ends them; with kStopNow, requests under way are not finished. `places`:
// for changed files of the job.
enum class RunHow { kServe, kStop, kStopNow };
int run_job(const JobConfig& config, const Places& places, RunHow how = RunHow::kServe);

}  // namespace pdjob::launcher
