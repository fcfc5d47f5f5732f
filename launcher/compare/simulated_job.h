// SimulatedJob: the job of a file, as a simulation plays it (launcher/played/trace_world.h).
// Router and workers get what their processes would get at a real start (launcher/specs). Each
// worker has its cores or GPUs for itself. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/result.h"
#include "launcher/capacity/engine_model.h"
#include "launcher/plan/job_config.h"
#include "launcher/played/trace_world.h"

namespace pdjob::launcher {

struct SimulatedJob {
  simulation::TraceJob job;
  std::vector<std::string> notes;  // What differs from the real job; whole sentences.
};

// kUnsupported: the job has a part that no simulation has; the message names it, and what to do.
// `start_time`: of a worker. kInvalidArgument: the job's launcher would not wait so long.
Result<SimulatedJob> simulated_job(const JobConfig& config, const EngineModel& model,
                                   Duration start_time);

// The same number of workers, as the job begins, each with both roles and the engine of a decode
// worker. `chunk`: the tokens of prompts in a step beside requests that decode.
simulation::TraceJob colocated(const simulation::TraceJob& job, uint32_t chunk);

// Some chunks that workers of both roles may have, in order.
std::vector<uint32_t> chunks_to_try(const simulation::TraceJob& job);

}  // namespace pdjob::launcher
