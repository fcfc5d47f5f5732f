// `pdjob simulate`: plays a load to the job of a file on virtual time, and prints what it showed.
#pragma once

#include <cstdint>
#include <string>

#include "common/result.h"
#include "launcher/compare/comparison.h"
#include "launcher/plan/job_config.h"

namespace pdjob::launcher {

struct SimulateFlags {
  std::string model;  // A file of launcher/capacity/engine_model.h; empty: the built-in one.
  // The load is a file, ...
  std::string trace;
  uint64_t skip = 0;
  // ... or said in words (launcher/played/load_words.h).
  std::string rate, prompt, output;
  std::string duration;  // Empty: two minutes, or as long as `requests` take.
  std::string arrivals = "poisson";
  uint64_t requests = 0;  // Of both; 0: all.
  double speed = 1;       // A file's requests come so many times as fast.
  std::string slo = "ttft=1s,itl=50ms";
  std::string start_time = "30s";  // Of a worker, if the job scales.
  uint64_t seed = 1;
  bool json = false;
  std::string html;  // A file that is written, too; empty: none.
};

// The job, the load and the model. The error says what to do.
Result<SimulationAsked> simulation_asked(const JobConfig& config, const SimulateFlags& flags);

// Writes a file that an option names; the error names both.
Status write_output(const std::string& option, const std::string& path, const std::string& text);

// Returns the exit code.
int simulate_job(const JobConfig& config, const SimulateFlags& flags);

}  // namespace pdjob::launcher
