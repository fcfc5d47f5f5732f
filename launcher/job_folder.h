// JobFolder: a running job's place on disk: state_dir/NAME. It holds launcher.json, through which
// `pdjob status` finds the launcher, worker_keys.json, and the logs (log_folder.h). The folder's
// lock makes the job's name unique. The lock ends with the process, so a killed launcher needs no
// cleanup by hand.
//
// If processes may outlive their launcher, the folder also holds the ledger (run/ledger.h), and the
// launcher's lease (run/lease.h): it says every second that it lives. A launcher that has not for
// kLauncherLease, and does not run, is ended by the next one, which takes over. A launcher that was
// replaced writes nothing here any more. Loop-bound.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "common/result.h"
#include "launcher/clusters/log_folder.h"
#include "launcher/plan/job_config.h"
#include "launcher/run/ledger.h"
#include "net/loop/socket.h"

namespace pdjob::launcher {

// The content of launcher.json. Value.
struct LauncherAddress {
  int64_t pid = 0;
  std::string admin;  // "127.0.0.1:41234"
  std::string key;    // Opens logs, and what changes the job. Secret.
};

inline constexpr Duration kLauncherLease = std::chrono::seconds(10);

class JobFolder {
 public:
  // kInvalidArgument: a job of that name is running, another job logs to the same folder, or other
  // users can write to this job's folder.
  static Result<JobFolder> claim(const JobConfig& config, Instant now);
  JobFolder(JobFolder&&) noexcept = default;
  JobFolder& operator=(JobFolder&&) noexcept = default;
  ~JobFolder();  // Removes launcher.json and worker_keys.json.

  Status publish(const LauncherAddress& address);
  // The API key of each worker's HTTP port, by the worker's name. Only the owner of the job can
  // read them.
  Status publish_keys(const std::map<std::string, std::string>& worker_keys);
  // The key of a rollout job's control routes. Only the owner of the job can read it.
  Status publish_control_key(const std::string& key);
  // Somebody has removed the folder, or another one has its path.
  bool is_there() const;
  // False also if somebody has removed a file that was published in it.
  bool is_whole() const;
  // Makes a folder that was removed or emptied, with all that was published. kInvalidArgument:
  // another job, or another user, has its path now.
  Status make_anew();
  LogFolder& logs() { return logs_; }
  const std::string& path() const { return path_; }
  // It is on disk when this returns. kCancelled: as for renew_lease().
  Status save(const JobLedger& ledger) const;
  // Removes ledger and lease, if they are still this launcher's: the run has ended.
  void forget_run(uint64_t launcher) const;
  // The highest number that any launcher of this folder has had.
  uint64_t last_launcher() const;
  // The number is on disk when this returns.
  Status begin_lease(uint64_t launcher, Instant now) const;
  // kCancelled: a launcher with a higher number has taken over.
  Status renew_lease(uint64_t launcher, Instant now) const;

  // These read what a job left in its folder, and trust it only if the folder belongs to this user
  // and nobody else can write to it: otherwise kInvalidArgument, or the job is not there.
  //
  // kNotFound: no job of that name is running.
  static Result<LauncherAddress> find(const std::string& state_dir, const std::string& job);
  // Returns the names of all running jobs whose folders are there, sorted; also of those without a
  // launcher.
  static std::vector<std::string> running(const std::string& state_dir);
  // What a launcher left that ended too early. kNotFound: nothing. kCorrupt: it cannot be read.
  static Result<JobLedger> ledger(const std::string& state_dir, const std::string& job);
  // The process that holds the lease. kNotFound: there is none, or it was renewed since
  // kLauncherLease.
  static Result<int64_t> silent_launcher(const std::string& state_dir, const std::string& job,
                                         Instant now);
  // Returns the published keys of these workers.
  static Result<std::vector<std::string>> worker_keys(const std::string& state_dir,
                                                      const std::string& job,
                                                      const std::vector<std::string>& names);

 private:
  JobFolder(std::string path, LogFolder logs, net::Fd lock)
      : path_(std::move(path)), logs_(std::move(logs)), lock_(std::move(lock)) {}

  Status write(const char* name, const std::string& text);
  // Takes the place of a folder that is gone.
  Status take_anew();

  std::string path_;
  std::map<std::string, std::string> published_;  // Texts by the names of their files.
  LogFolder logs_;
  net::Fd lock_;  // The folder's own descriptor; invalid once moved from.
};

}  // namespace pdjob::launcher
