#include "launcher/job_folder.h"

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <system_error>

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "common/files/own_files.h"
#include "common/json/json_fields.h"
#include "common/json/json_writer.h"
#include "common/os/read_text.h"
#include "launcher/clusters/vital_signs.h"
#include "launcher/run/held_lock.h"
#include "launcher/run/lease.h"
#include "launcher/run/local_agent.h"

namespace pdjob::launcher {

namespace {

namespace fs = std::filesystem;

// `pdjob status` trusts launcher.json, so other users must not be able to write one.
Status check_ours(int folder, const std::string& path) {
  struct stat found{};
  if (fstat(folder, &found) != 0) {
    return system_error("cannot look at " + path);
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

std::string ledger_path(const std::string& path) { return path + "/ledger"; }
std::string spare_path(const std::string& path) { return path + "/ledger.spare"; }

// A ledger's file: the size of its bytes, the bytes, and room to grow.
constexpr off_t kRoomStep = off_t{64} * 1024;

std::string sized(const std::string& bytes) {
  const uint64_t size = bytes.size();
  std::string text(sizeof size, '\0');
  std::memcpy(text.data(), &size, sizeof size);
  return text + bytes;
}

std::string without_size(const std::string& text) {
  uint64_t size = 0;
  if (text.size() < sizeof size) {
    return "";
  }
  std::memcpy(&size, text.data(), sizeof size);
  return size <= text.size() - sizeof size ? text.substr(sizeof size, size) : "";
}

bool has_room(int file, off_t bytes) {
  struct stat found{};
  if (fstat(file, &found) != 0 || found.st_size >= bytes) {
    return found.st_size >= bytes;
  }
  errno = posix_fallocate(file, 0, (bytes + kRoomStep - 1) / kRoomStep * kRoomStep);
  return errno == 0;
}

bool replace(const std::string& spare, const std::string& path) {
  return renameat2(AT_FDCWD, spare.c_str(), AT_FDCWD, path.c_str(), RENAME_EXCHANGE) == 0 ||
         rename(spare.c_str(), path.c_str()) == 0;  // There is none yet, or the disk cannot swap.
}

// Writes the whole file or nothing. Two files take turns, and each keeps its room. So a disk that
// is full since the second write does not keep a ledger from being written.
Status write_ledger(const std::string& folder, const std::string& bytes) {
  const std::string text = sized(bytes);
  const net::Fd file(
      open(spare_path(folder).c_str(), O_WRONLY | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600));
  if (!file.valid() || !has_room(file.get(), static_cast<off_t>(text.size())) ||
      pwrite(file.get(), text.data(), text.size(), 0) != static_cast<ssize_t>(text.size()) ||
      fdatasync(file.get()) != 0 || !replace(spare_path(folder), ledger_path(folder))) {
    return system_error("cannot write " + ledger_path(folder));
  }
  return ok();
}

Result<LauncherAddress> read_address(const std::string& path) {
  JsonFields fields(path, read_text(path));
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

// The folder of a job, if what is in it can be trusted. kNotFound: there is none.
Result<net::Fd> open_ours(const std::string& path) {
  net::Fd folder = open_folder(path);
  if (!folder.valid()) {
    return Error{ErrorCode::kNotFound, "there is no folder " + path};
  }
  PDJOB_TRY_STATUS(check_ours(folder.get(), path));
  return folder;
}

// Another path of the same folder, which stays that folder's whatever happens to its name.
std::string path_of(const net::Fd& folder) {
  return "/proc/self/fd/" + std::to_string(folder.get());
}

int64_t milliseconds_of(Instant now) {
  return now.time_since_epoch() / std::chrono::milliseconds(1);
}

Duration silence_of(const Lease& lease, Instant now) {
  return std::chrono::milliseconds(milliseconds_of(now) - lease.renewed_ms);
}

// A launcher that lives renews its lease each second, even if that fails.
bool stands_still(int64_t pid) {
  constexpr Duration kBetweenLooks = std::chrono::milliseconds(1500);
  const timespec pause{
      .tv_sec = kBetweenLooks / std::chrono::seconds(1),
      .tv_nsec = kBetweenLooks % std::chrono::seconds(1) / std::chrono::nanoseconds(1)};
  const auto first = vital_signs_of(pid, Instant());
  nanosleep(&pause, nullptr);
  const auto second = vital_signs_of(pid, Instant());
  return first && second && second->slept_since(*first);
}

// Ends the launcher that holds the folder, if its lease has expired and it stands still: it would
// hold the job's ports.
bool take_over(const std::string& path, Instant now) {
  const auto lease = read_lease(path);
  const Duration silent = lease ? silence_of(*lease, now) : Duration{};
  if (silent < kLauncherLease) {
    return false;
  }
  const std::string pid = std::to_string(lease->pid);
  if (!stands_still(lease->pid)) {
    std::fprintf(stderr,
                 "pdjob: the launcher, pid %s, runs, but cannot renew %s: is its disk full?\n",
                 pid.c_str(), lease_path(path).c_str());
    return false;
  }
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
    return system_error("cannot open " + path);
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
  const auto old = fs::exists(ledger_path(path)) ? LogFolder::Old::kKeep : LogFolder::Old::kRemove;
  PDJOB_TRY(LogFolder logs, LogFolder::claim(config.launcher.log_dir, config.name, old));
  return JobFolder(path, std::move(logs), std::move(lock));
}

JobFolder::~JobFolder() {
  if (lock_.valid() && is_there()) {
    std::error_code ignored;
    fs::remove(path_ + "/worker_keys.json", ignored);
    fs::remove(path_ + "/launcher.json", ignored);
    fs::remove(path_ + "/control_key", ignored);
  }
}

bool JobFolder::is_there() const {
  struct stat held{};
  struct stat found{};
  return fstat(lock_.get(), &held) == 0 && stat(path_.c_str(), &found) == 0 &&
         held.st_ino == found.st_ino && held.st_dev == found.st_dev;
}

bool JobFolder::is_whole() const {
  return is_there() && std::ranges::all_of(published_, [this](const auto& file) {
           return access((path_ + "/" + file.first).c_str(), F_OK) == 0;
         });
}

Status JobFolder::make_anew() {
  if (!is_there()) {
    PDJOB_TRY_STATUS(take_anew());
  }
  for (const auto& [name, text] : published_) {
    PDJOB_TRY_STATUS(write_own_text(path_ + "/" + name, text));
  }
  return ok();
}

Status JobFolder::take_anew() {
  PDJOB_TRY_STATUS(make_private_folder(path_));
  net::Fd lock = open_folder(path_);
  if (!lock.valid()) {
    return system_error("cannot open " + path_);
  }
  PDJOB_TRY_STATUS(check_ours(lock.get(), path_));
  if (flock(lock.get(), LOCK_EX | LOCK_NB) != 0) {
    return Error{ErrorCode::kInvalidArgument, "another job has the folder " + path_ + " now"};
  }
  lock_ = std::move(lock);
  return ok();
}

Status JobFolder::write(const char* name, const std::string& text) {
  published_[name] = text;
  if (!is_there()) {
    return Error{ErrorCode::kUnavailable, path_ + " was removed, or is another folder now"};
  }
  return write_own_text(path_ + "/" + name, text);
}

void JobFolder::forget_run(uint64_t launcher) const {
  const auto fence = is_there() ? Fence::pass(path_, launcher, getpid())
                                : Result<Fence>(Error{ErrorCode::kNotFound, ""});
  if (fence) {
    std::error_code ignored;
    fs::remove(ledger_path(path_), ignored);
    fs::remove(spare_path(path_), ignored);
    fs::remove(lease_path(path_), ignored);
  }
}

Status JobFolder::save(const JobLedger& ledger) const {
  PDJOB_TRY(const Fence fence, Fence::pass(path_, ledger.launcher, getpid()));
  PDJOB_TRY_STATUS(write_ledger(path_, encode(ledger)));
  return fsync(lock_.get()) == 0 ? ok() : Status(system_error("cannot write " + path_));
}

Result<JobLedger> JobFolder::ledger(const std::string& state_dir, const std::string& job) {
  const auto folder = open_ours(state_dir + "/" + job);
  if (!folder && folder.error().code != ErrorCode::kNotFound) {
    return folder.error();
  }
  if (!folder || !fs::exists(ledger_path(path_of(*folder)))) {
    return Error{ErrorCode::kNotFound, "no job called " + job + " is running"};
  }
  return decode_ledger(without_size(read_text(ledger_path(path_of(*folder)))));
}

uint64_t JobFolder::last_launcher() const { return read_lease(path_).value_or(Lease{}).launcher; }

Status JobFolder::begin_lease(uint64_t launcher, Instant now) const {
  PDJOB_TRY(const Fence fence, Fence::pass(path_, launcher, getpid()));
  PDJOB_TRY_STATUS(fence.renew({launcher, getpid(), milliseconds_of(now)}, Durable::kYes));
  return fsync(lock_.get()) == 0 ? ok() : Status(system_error("cannot write " + path_));
}

Status JobFolder::renew_lease(uint64_t launcher, Instant now) const {
  PDJOB_TRY(const Fence fence, Fence::pass(path_, launcher, getpid()));
  return fence.renew({launcher, getpid(), milliseconds_of(now)}, Durable::kNo);
}

Result<int64_t> JobFolder::silent_launcher(const std::string& state_dir, const std::string& job,
                                           Instant now) {
  PDJOB_TRY(const net::Fd folder, open_ours(state_dir + "/" + job));
  const auto lease = read_lease(path_of(folder));
  if (!lease || silence_of(*lease, now) < kLauncherLease) {
    return Error{ErrorCode::kNotFound, "no lease has expired"};
  }
  return lease->pid;
}

Status JobFolder::publish(const LauncherAddress& address) {
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
  return write("launcher.json", text);
}

Status JobFolder::publish_keys(const std::map<std::string, std::string>& worker_keys) {
  std::string text;
  JsonWriter json(text);
  json.begin_object();
  for (const auto& [name, key] : worker_keys) {
    json.key(name).string(key);
  }
  json.end_object();
  text += '\n';
  return write("worker_keys.json", text);
}

Status JobFolder::publish_control_key(const std::string& key) {
  return write("control_key", key + "\n");
}

Result<LauncherAddress> JobFolder::find(const std::string& state_dir, const std::string& job) {
  const auto folder = open_ours(state_dir + "/" + job);
  if (!folder && folder.error().code != ErrorCode::kNotFound) {
    return folder.error();
  }
  const std::string path = folder ? path_of(*folder) : "";
  if (!folder || !is_locked(path)) {
    const auto left = ledger(state_dir, job);
    return Error{
        ErrorCode::kNotFound,
        folder && has_agent(path) && left && left->job.warm
            ? "job " + job +
                  " has ended, and its workers stay warm (launcher.keep). Start a job of the same "
                  "file, and it goes on with them, or run `pdjob stop --job " +
                  job + "`"
        : folder && has_agent(path)
            ? "job " + job +
                  " has no launcher now: its processes go on until launcher.orphan_timeout "
                  "ends them. Start the job again, and it goes on with them, or run "
                  "`pdjob stop --job " +
                  job + "`"
            : "no job called " + job + " is running"};
  }
  if (!fs::exists(path + "/launcher.json")) {
    return Error{ErrorCode::kUnavailable,
                 "the launcher of job " + job + " is just starting or ending: ask once more"};
  }
  return read_address(path + "/launcher.json");
}

std::vector<std::string> JobFolder::running(const std::string& state_dir) {
  std::vector<std::string> names;
  std::error_code failed;
  for (std::filesystem::directory_iterator at(state_dir, failed), end; !failed && at != end;
       at.increment(failed)) {
    const auto folder = open_ours(at->path().string());
    if (folder && (is_locked(path_of(*folder)) || has_agent(path_of(*folder)))) {
      names.push_back(at->path().filename().string());
    }
  }
  std::ranges::sort(names);
  return names;
}

Result<std::vector<std::string>> JobFolder::worker_keys(const std::string& state_dir,
                                                        const std::string& job,
                                                        const std::vector<std::string>& names) {
  PDJOB_TRY(const net::Fd folder, open_ours(state_dir + "/" + job));
  const std::string path = path_of(folder) + "/worker_keys.json";
  JsonFields fields(path, read_text(path));
  std::vector<std::string> keys;
  for (const std::string& name : names) {
    fields.take(name.c_str(), keys.emplace_back());
  }
  PDJOB_TRY_STATUS(fields.status());
  return keys;
}

}  // namespace pdjob::launcher
