// JobFolder: a running job's place on disk: state_dir/NAME with launcher.json (how `pdjob status`
// finds the launcher), and its logs (log_folder.h). Holding its lock is what makes a job's name
// unique; the lock goes with the process, so a killed launcher leaves nothing that must be cleaned
// up by hand. Loop-bound.
#pragma once

#include <cstdint>
#include <string>

#include "common/result.h"
#include "launcher/job_config.h"
#include "launcher/log_folder.h"
#include "net/socket.h"

namespace pdjob::launcher {

// What launcher.json says. Value.
struct LauncherAddress {
  int64_t pid = 0;
  std::string admin;  // "127.0.0.1:41234"
};

class JobFolder {
 public:
  // kInvalidArgument: a job of that name is running, another job logs to the same folder, or other
  // users may write where this job keeps its state.
  static Result<JobFolder> claim(const JobConfig& config);
  JobFolder(JobFolder&&) noexcept = default;
  JobFolder& operator=(JobFolder&&) noexcept = default;
  ~JobFolder();  // Removes launcher.json; the logs stay.

  Status publish(const LauncherAddress& address) const;
  LogFolder& logs() { return logs_; }

  // kNotFound: no such job runs.
  static Result<LauncherAddress> find(const std::string& state_dir, const std::string& job);

 private:
  JobFolder(std::string path, LogFolder logs, net::Fd lock)
      : path_(std::move(path)), logs_(std::move(logs)), lock_(std::move(lock)) {}

  std::string path_;
  LogFolder logs_;
  net::Fd lock_;  // Of the folder itself; invalid once moved from.
};

}  // namespace pdjob::launcher
