// `pdjob batch`: offline files in, results out.
#pragma once

#include <string>
#include <vector>

#include "batch/batch_options.h"
#include "launcher/plan/job_config.h"

namespace pdjob::launcher {

struct BatchFlags {
  std::string config;   // A job file. It is started, unless one of these says where rows go:
  std::string job;      // A job that runs here: its name, or its file.
  std::string url;      // A server that runs.
  std::string ca_file;  // Of an https server; empty: the system's authorities are trusted.
  std::vector<std::string> inputs;    // Empty: those of the job file.
  std::vector<ConfigSetting> keys;    // Of the section `batch`, as "order=completed".
  std::vector<std::string> settings;  // Of the whole job file, as "decode.workers=2".
  bool restart = false;
  bool retry_failed = false;
};

// All return the exit code (common/exit_code.h).
int run_batch_command(const BatchFlags& flags, const Places& places);
// The job of a batch; the batch starts it.
int run_batch_job(const std::string& config_path, const std::vector<std::string>& settings,
                  const Places& places);

}  // namespace pdjob::launcher
