#include "launcher/job_folder.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <system_error>

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/json/json_fields.h"
#include "common/json/json_writer.h"

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

// Writes the whole file or nothing; only its owner can read it.
Status write_private(const std::string& path, const std::string& text) {
  const std::string draft = path + ".new";
  unlink(draft.c_str());
  const net::Fd file(open(draft.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  if (!file.valid() ||
      write(file.get(), text.data(), text.size()) != static_cast<ssize_t>(text.size()) ||
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

bool is_locked(const std::string& path) {
  const net::Fd folder = open_folder(path);
  return folder.valid() && flock(folder.get(), LOCK_SH | LOCK_NB) != 0;
}

}  // namespace

Result<JobFolder> JobFolder::claim(const JobConfig& config) {
  const std::string path = config.launcher.state_dir + "/" + config.name;
  PDJOB_TRY_STATUS(make_private_folder(path));
  net::Fd lock = open_folder(path);
  if (!lock.valid()) {
    return cannot("open " + path, std::strerror(errno));
  }
  PDJOB_TRY_STATUS(check_ours(lock.get(), path));
  if (flock(lock.get(), LOCK_EX | LOCK_NB) != 0) {
    const auto running = read_address(path + "/launcher.json");
    const std::string pid = running ? std::to_string(running->pid) : "unknown";
    return Error{ErrorCode::kInvalidArgument,
                 "a job called " + config.name + " is already running (launcher pid " + pid +
                     "): stop it with `kill " + pid + "`, or give this one another name"};
  }
  std::error_code ignored;
  fs::remove(path + "/launcher.json", ignored);  // Left by a killed launcher.
  PDJOB_TRY(LogFolder logs, LogFolder::claim(config.launcher.log_dir, config.name));
  return JobFolder(path, std::move(logs), std::move(lock));
}

JobFolder::~JobFolder() {
  if (lock_.valid()) {
    std::error_code ignored;
    fs::remove(path_ + "/worker_keys.json", ignored);
    fs::remove(path_ + "/launcher.json", ignored);
  }
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
    return Error{ErrorCode::kNotFound, "no job called " + job + " is running"};
  }
  return read_address(path + "/launcher.json");
}

std::vector<std::string> JobFolder::running(const std::string& state_dir) {
  std::vector<std::string> names;
  std::error_code failed;
  for (std::filesystem::directory_iterator at(state_dir, failed), end; !failed && at != end;
       at.increment(failed)) {
    if (is_locked(at->path().string())) {
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
