#include "launcher/run/held_lock.h"

#include <cerrno>
#include <filesystem>
#include <system_error>

#include <fcntl.h>
#include <poll.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace pdjob::launcher {

namespace {

bool has_open(int64_t pid, const struct stat& file) {
  std::error_code failed;
  const std::string folder = "/proc/" + std::to_string(pid) + "/fd";
  for (std::filesystem::directory_iterator at(folder, failed), end; !failed && at != end;
       at.increment(failed)) {
    struct stat found{};
    if (stat(at->path().c_str(), &found) == 0 && found.st_dev == file.st_dev &&
        found.st_ino == file.st_ino) {
      return true;
    }
  }
  return false;
}

}  // namespace

bool is_locked(const std::string& path) {
  const net::Fd file(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file.valid()) {
    return errno == EMFILE || errno == ENFILE || errno == ENOMEM;
  }
  return flock(file.get(), LOCK_SH | LOCK_NB) != 0;
}

Result<net::Fd> open_holder(int64_t pid, const std::string& path) {
  struct stat file{};
  net::Fd process(pid > 1 ? static_cast<int>(syscall(SYS_pidfd_open, static_cast<pid_t>(pid), 0))
                          : -1);
  // First the descriptor: from now on the number is this process's, or nobody's.
  if (!process.valid() || stat(path.c_str(), &file) != 0 || !has_open(pid, file)) {
    return Error{ErrorCode::kNotFound, "process " + std::to_string(pid) + " does not hold " + path};
  }
  return process;
}

Status end_holder(int64_t pid, const std::string& path, int signal, Duration patience) {
  PDJOB_TRY(const net::Fd process, open_holder(pid, path));
  if (syscall(SYS_pidfd_send_signal, process.get(), signal, nullptr, 0) != 0 && errno != ESRCH) {
    return system_error("cannot signal process " + std::to_string(pid));
  }
  pollfd ended{.fd = process.get(), .events = POLLIN};
  if (poll(&ended, 1, static_cast<int>(patience / std::chrono::milliseconds(1))) != 1) {
    return Error{ErrorCode::kTimeout, "process " + std::to_string(pid) + " does not end"};
  }
  return ok();
}

}  // namespace pdjob::launcher
