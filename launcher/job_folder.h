// JobFolder: a running job's place on disk: state_dir/NAME with launcher.json (how `pdjob status`
// finds the launcher) and logs. Holding its lock is what makes a job's name unique; the lock goes
// with the process, so a killed launcher leaves nothing that must be cleaned up by hand.
// Loop-bound.
#pragma once

#include <cstdint>
#include <string>

#include "common/result.h"
#include "launcher/job_config.h"
#include "net/socket.h"

namespace pdjob::launcher {

// What launcher.json says. Value.
struct LauncherAddress {
  int64_t pid = 0;
  std::string admin;  // "127.0.0.1:41234"
};

class JobFolder {
 public:
  // kInvalidArgument: a job of that name is running.
  static Result<JobFolder> claim(const JobConfig& config);
  JobFolder(JobFolder&&) noexcept = default;
  JobFolder& operator=(JobFolder&&) noexcept = default;
  ~JobFolder();  // Removes launcher.json; the logs stay.

  Status publish(const LauncherAddress& address) const;
  const std::string& log_dir() const { return log_dir_; }

  // The last lines of a process's log, for an error message.
  std::string log_tail(const std::string& process_name) const;
  std::string log_path(const std::string& process_name) const {
    return log_dir_ + "/" + process_name + ".log";
  }

  // kNotFound: no such job runs.
  static Result<LauncherAddress> find(const std::string& state_dir, const std::string& job);

 private:
  JobFolder(std::string path, std::string log_dir, net::Fd lock)
      : path_(std::move(path)), log_dir_(std::move(log_dir)), lock_(std::move(lock)) {}

  std::string path_;
  std::string log_dir_;
  net::Fd lock_;  // Of the folder itself; invalid once moved from.
};

}  // namespace pdjob::launcher
