#include "launcher/job_folder.h"

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <system_error>

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include "net/json_fields.h"
#include "net/json_writer.h"

namespace pdjob::launcher {

namespace {

namespace fs = std::filesystem;

constexpr std::streamoff kTailBytes = 4096;
constexpr int kTailLines = 15;

Error cannot(const std::string& what, const std::string& why) {
  return {ErrorCode::kUnavailable, "cannot " + what + ": " + why};
}

// Only for its owner: launcher.json leads to the admin port, logs may name files.
Status make_private_folder(const std::string& path) {
  std::error_code error;
  fs::create_directories(path, error);
  if (!error) {
    fs::permissions(path, fs::perms::owner_all, error);
  }
  return error ? Status(cannot("make the folder " + path, error.message())) : ok();
}

std::string read_whole(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

Result<LauncherAddress> read_address(const std::string& path) {
  net::JsonFields fields(path, read_whole(path));
  LauncherAddress address;
  fields.take("pid", address.pid);
  fields.take("admin", address.admin);
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

void remove_old_logs(const std::string& log_dir) {
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(log_dir, ignored)) {
    if (entry.path().extension() == ".log") {
      fs::remove(entry.path(), ignored);
    }
  }
}

}  // namespace

Result<JobFolder> JobFolder::claim(const JobConfig& config) {
  const std::string path = config.launcher.state_dir + "/" + config.name;
  PDJOB_TRY_STATUS(make_private_folder(path));
  PDJOB_TRY_STATUS(make_private_folder(config.launcher.log_dir));
  net::Fd lock = open_folder(path);
  if (!lock.valid()) {
    return cannot("open " + path, std::strerror(errno));
  }
  if (flock(lock.get(), LOCK_EX | LOCK_NB) != 0) {
    const auto running = read_address(path + "/launcher.json");
    const std::string pid = running ? std::to_string(running->pid) : "unknown";
    return Error{ErrorCode::kInvalidArgument,
                 "a job called " + config.name + " is already running (launcher pid " + pid +
                     "): stop it with `kill " + pid + "`, or give this one another name"};
  }
  std::error_code ignored;
  fs::remove(path + "/launcher.json", ignored);  // Of a launcher that was killed.
  remove_old_logs(config.launcher.log_dir);
  return JobFolder(path, config.launcher.log_dir, std::move(lock));
}

JobFolder::~JobFolder() {
  if (lock_.valid()) {
    std::error_code ignored;
    fs::remove(path_ + "/launcher.json", ignored);
  }
}

Status JobFolder::publish(const LauncherAddress& address) const {
  std::string text;
  net::JsonWriter json(text);
  json.begin_object()
      .key("pid")
      .integer(address.pid)
      .key("admin")
      .string(address.admin)
      .end_object();
  text += "\n";
  const std::string path = path_ + "/launcher.json";
  const std::string draft = path + ".new";
  const net::Fd file(open(draft.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600));
  if (!file.valid() ||
      write(file.get(), text.data(), text.size()) != static_cast<ssize_t>(text.size()) ||
      rename(draft.c_str(), path.c_str()) != 0) {
    return cannot("write " + path, std::strerror(errno));
  }
  return ok();
}

std::string JobFolder::log_tail(const std::string& process_name) const {
  std::ifstream file(log_path(process_name), std::ios::binary | std::ios::ate);
  if (!file) {
    return "";
  }
  const std::streamoff size = file.tellg();
  file.seekg(std::max<std::streamoff>(0, size - kTailBytes));
  const std::string text(std::istreambuf_iterator<char>(file), {});
  size_t begin = text.size();
  for (int lines = 0; lines <= kTailLines && begin != std::string::npos && begin > 0; ++lines) {
    begin = text.rfind('\n', begin - 1);
  }
  return text.substr(begin == std::string::npos ? 0 : std::min(begin + 1, text.size()));
}

Result<LauncherAddress> JobFolder::find(const std::string& state_dir, const std::string& job) {
  const std::string path = state_dir + "/" + job;
  if (!is_locked(path)) {
    return Error{ErrorCode::kNotFound, "no job called " + job + " is running"};
  }
  return read_address(path + "/launcher.json");
}

}  // namespace pdjob::launcher
