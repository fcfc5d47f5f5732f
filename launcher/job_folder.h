// JobFolder: a running job's place on disk: state_dir/NAME with launcher.json (how `pdjob status`
// finds the launcher), worker_keys.json, and its logs (log_folder.h). Holding its lock is what
// makes a job's name unique; the lock goes with the process, so a killed launcher leaves nothing
// that must be cleaned up by hand. Loop-bound.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

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
  ~JobFolder();  // Removes both files; the logs stay.

  Status publish(const LauncherAddress& address) const;
  // By name, what the HTTP port of each worker wants. Only the owner of the job can read them.
  Status publish_keys(const std::map<std::string, std::string>& worker_keys) const;
  LogFolder& logs() { return logs_; }

  // kNotFound: no such job runs.
  static Result<LauncherAddress> find(const std::string& state_dir, const std::string& job);
  // What publish_keys() says of these.
  static Result<std::vector<std::string>> worker_keys(const std::string& state_dir,
                                                      const std::string& job,
                                                      const std::vector<std::string>& names);

 private:
  JobFolder(std::string path, LogFolder logs, net::Fd lock)
      : path_(std::move(path)), logs_(std::move(logs)), lock_(std::move(lock)) {}

  std::string path_;
  LogFolder logs_;
  net::Fd lock_;  // Of the folder itself; invalid once moved from.
};

}  // namespace pdjob::launcher
