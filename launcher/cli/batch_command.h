// `pdjob batch`: offline files in, results out.
#pragma once

#include <string>
#include <vector>

#include "launcher/plan/job_config.h"

namespace pdjob::launcher {

struct BatchFlags {
  std::vector<std::string> inputs;  // Files, patterns such as "rows/*.jsonl", or "-".
  std::string out;
  std::string config;  // A job file; or else:
  std::string url;     // A server that runs.
  std::string key_file;
  std::string format;
  std::string body_template;  // JSON, or the file that has it.
  std::string endpoint;
  std::string id_column;
  std::string order = "input";
  std::string row_timeout = "10min";
  std::string patience = "10min";
  uint32_t concurrency = 0;
  uint32_t attempts = 5;
  bool restart = false;
  bool retry_failed = false;
};

// All return the exit code (common/exit_code.h).
int run_batch_command(const BatchFlags& flags, const Places& places);
// The job of a batch; the batch starts it.
int run_batch_job(const std::string& config_path, const Places& places);

}  // namespace pdjob::launcher
