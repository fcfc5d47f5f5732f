#include "launcher/job_folder.h"

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <system_error>

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/json/json_fields.h"
#include "common/json/json_writer.h"
#include "launcher/run/held_lock.h"
#include "launcher/run/local_agent.h"

namespace pdjob::launcher {

namespace {

namespace fs = std::filesystem;

Error cannot(const std::string& what, const std::string& why) {
  return {ErrorCode::kUnavailable, "cannot " + what + ": " + why};
}

// `pdjob status` trusts launcher.json, so other users must not be able to write one.
Status check_ours(int folder, const std::string& path) {
  struct stat found{};
  if (fstat(folder, &found) != 0) {
    return cannot("look at " + path, std::strerror(errno));
  }
  if (found.st_uid != geteuid() || (found.st_mode & (S_IWGRP | S_IWOTH)) != 0) {
    return Error{ErrorCode::kInvalidArgument,
                 path +
                     " belongs to another user, or others may write to it: choose another "
                     "launcher.state_dir, or run `chmod go-w " +
                     path + "`"};
  }
  return ok();
}

std::string read_whole(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

// Writes the whole file or nothing; only its owner can read it. kYes: it survives a power cut.
enum class Durable { kNo, kYes };
Status write_private(const std::string& path, const std::string& text,
                     Durable durable = Durable::kNo) {
  const std::string draft = path + ".new";
  unlink(draft.c_str());
  const net::Fd file(open(draft.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  if (!file.valid() ||
      write(file.get(), text.data(), text.size()) != static_cast<ssize_t>(text.size()) ||
      (durable == Durable::kYes && fdatasync(file.get()) != 0) ||
      rename(draft.c_str(), path.c_str()) != 0) {
    return cannot("write " + path, std::strerror(errno));
  }
  return ok();
}

Result<LauncherAddress> read_address(const std::string& path) {
  JsonFields fields(path, read_whole(path));
  LauncherAddress address;
  fields.take("pid", address.pid);
  fields.take("admin", address.admin);
  fields.take("key", address.key);
  PDJOB_TRY_STATUS(fields.status());
  return address;
}

net::Fd open_folder(const std::string& path) {
  return net::Fd(open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
}

// Of the launcher that holds the folder. Its clock is the machine's.
struct Lease {
  uint64_t launcher = 0;
  int64_t pid = 0;
  int64_t renewed_ms = 0;
};

std::string lease_path(const std::string& path) { return path + "/lease"; }

std::optional<Lease> read_lease(const std::string& path) {
  std::ifstream file(lease_path(path));
  Lease lease;
  return file >> lease.launcher >> lease.pid >> lease.renewed_ms ? std::optional(lease)
                                                                 : std::nullopt;
}

int64_t milliseconds_of(Instant now) {
  return now.time_since_epoch() / std::chrono::milliseconds(1);
}

// Ends the launcher that holds the folder, if its lease has expired: it stands still, and would
// hold the job's ports.
bool take_over(const std::string& path, Instant now) {
  const auto lease = read_lease(path);
  const Duration silent =
      std::chrono::milliseconds(lease ? milliseconds_of(now) - lease->renewed_ms : 0);
  if (silent < kLauncherLease) {
    return false;
  }
  const std::string pid = std::to_string(lease->pid);
  if (const Status ended = end_holder(lease->pid, path, SIGKILL, kLauncherLease); !ended) {
    std::fprintf(stderr, "pdjob: the launcher, pid %s, stands still: %s\n", pid.c_str(),
                 ended.error().message.c_str());
    return false;
  }
  std::fprintf(stderr, "pdjob: the launcher, pid %s, stood still for %lld s, and was ended\n",
               pid.c_str(), static_cast<long long>(silent / std::chrono::seconds(1)));
  return true;
}

bool has_agent(const std::string& path) { return LocalAgent::runs(path); }

}  // namespace

Result<JobFolder> JobFolder::claim(const JobConfig& config, Instant now) {
  const std::string path = config.launcher.state_dir + "/" + config.name;
  PDJOB_TRY_STATUS(make_private_folder(path));
  net::Fd lock = open_folder(path);
  if (!lock.valid()) {
    return cannot("open " + path, std::strerror(errno));
  }
  PDJOB_TRY_STATUS(check_ours(lock.get(), path));
  if (flock(lock.get(), LOCK_EX | LOCK_NB) != 0 &&
      (!take_over(path, now) || flock(lock.get(), LOCK_EX | LOCK_NB) != 0)) {
    const auto running = read_address(path + "/launcher.json");
    const std::string pid = running ? std::to_string(running->pid) : "unknown";
    return Error{ErrorCode::kInvalidArgument,
                 "a job called " + config.name + " is already running (launcher pid " + pid +
                     "): stop it with `kill " + pid + "`, or give this one another name"};
  }
  std::error_code ignored;
  fs::remove(path + "/launcher.json", ignored);  // Left by a killed launcher.
  // Processes that outlived their launcher still write to their logs.
  const auto old = fs::exists(path + "/ledger") ? LogFolder::Old::kKeep : LogFolder::Old::kRemove;
  PDJOB_TRY(LogFolder logs, LogFolder::claim(config.launcher.log_dir, config.name, old));
  return JobFolder(path, std::move(logs), std::move(lock));
}

JobFolder::~JobFolder() {
  if (lock_.valid()) {
    std::error_code ignored;
    fs::remove(path_ + "/worker_keys.json", ignored);
    fs::remove(path_ + "/launcher.json", ignored);
  }
}

void JobFolder::forget_run() const {
  std::error_code ignored;
  fs::remove(path_ + "/ledger", ignored);
  fs::remove(lease_path(path_), ignored);
}

Status JobFolder::save(const Ledger& ledger) const {
  PDJOB_TRY_STATUS(write_private(path_ + "/ledger", encode(ledger), Durable::kYes));
  return fsync(lock_.get()) == 0 ? ok() : Status(cannot("write " + path_, std::strerror(errno)));
}

Result<Ledger> JobFolder::ledger(const std::string& state_dir, const std::string& job) {
  const std::string path = state_dir + "/" + job + "/ledger";
  if (!fs::exists(path)) {
    return Error{ErrorCode::kNotFound, "no job called " + job + " is running"};
  }
  return decode_ledger(read_whole(path));
}

Status JobFolder::renew_lease(uint64_t launcher, Instant now) const {
  const auto found = read_lease(path_);
  if (found && found->launcher > launcher) {
    return Error{ErrorCode::kCancelled, "another launcher of this job, pid " +
                                            std::to_string(found->pid) + ", has taken over"};
  }
  return write_private(lease_path(path_), std::to_string(launcher) + " " +
                                              std::to_string(getpid()) + " " +
                                              std::to_string(milliseconds_of(now)) + "\n");
}

Status JobFolder::publish(const LauncherAddress& address) const {
  std::string text;
  JsonWriter json(text);
  json.begin_object()
      .key("pid")
      .integer(address.pid)
      .key("admin")
      .string(address.admin)
      .key("key")
      .string(address.key)
      .end_object();
  text += '\n';
  return write_private(path_ + "/launcher.json", text);
}

Status JobFolder::publish_keys(const std::map<std::string, std::string>& worker_keys) const {
  std::string text;
  JsonWriter json(text);
  json.begin_object();
  for (const auto& [name, key] : worker_keys) {
    json.key(name).string(key);
  }
  json.end_object();
  text += '\n';
  return write_private(path_ + "/worker_keys.json", text);
}

Result<LauncherAddress> JobFolder::find(const std::string& state_dir, const std::string& job) {
  const std::string path = state_dir + "/" + job;
  if (!is_locked(path)) {
    return Error{
        ErrorCode::kNotFound,
        has_agent(path)
            ? "job " + job +
                  " has no launcher now: its processes go on until launcher.orphan_timeout "
                  "ends them. Start the job again, and it goes on with them, or run "
                  "`pdjob stop --job " +
                  job + "`"
            : "no job called " + job + " is running"};
  }
  return read_address(path + "/launcher.json");
}

std::vector<std::string> JobFolder::running(const std::string& state_dir) {
  std::vector<std::string> names;
  std::error_code failed;
  for (std::filesystem::directory_iterator at(state_dir, failed), end; !failed && at != end;
       at.increment(failed)) {
    if (is_locked(at->path().string()) || has_agent(at->path().string())) {
      names.push_back(at->path().filename().string());
    }
  }
  std::ranges::sort(names);
  return names;
}

Result<std::vector<std::string>> JobFolder::worker_keys(const std::string& state_dir,
                                                        const std::string& job,
                                                        const std::vector<std::string>& names) {
  const std::string path = state_dir + "/" + job + "/worker_keys.json";
  JsonFields fields(path, read_whole(path));
  std::vector<std::string> keys;
  for (const std::string& name : names) {
    fields.take(name.c_str(), keys.emplace_back());
  }
  PDJOB_TRY_STATUS(fields.status());
  return keys;
}

}  // namespace pdjob::launcher
