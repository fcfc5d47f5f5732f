#include "launcher/cli/stop_command.h"

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>

#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "common/exit_code.h"
#include "common/result.h"
#include "launcher/job_folder.h"
#include "net/loop/socket.h"

namespace pdjob::launcher {

namespace {

Error cannot(const std::string& what) {
  return {ErrorCode::kUnavailable, what + ": " + std::strerror(errno)};
}

Status send_signal(const net::Fd& process) {
  return syscall(SYS_pidfd_send_signal, process.get(), SIGTERM, nullptr, 0) == 0
             ? ok()
             : Status(cannot("cannot signal the launcher"));
}

// The launcher's own stop_timeout bounds the wait.
Status stop(const std::string& state_dir, const std::string& job, StopHow how) {
  PDJOB_TRY(const LauncherAddress launcher, JobFolder::find(state_dir, job));
  const net::Fd process(
      static_cast<int>(syscall(SYS_pidfd_open, static_cast<pid_t>(launcher.pid), 0)));
  if (!process.valid()) {
    return cannot("cannot reach the launcher, pid " + std::to_string(launcher.pid));
  }
  // The number may have been another process's until we had the descriptor.
  PDJOB_TRY(const LauncherAddress again, JobFolder::find(state_dir, job));
  if (again.pid != launcher.pid) {
    return Error{ErrorCode::kUnavailable, "the job was started again just now: ask once more"};
  }
  PDJOB_TRY_STATUS(send_signal(process));
  if (how == StopHow::kNow) {
    PDJOB_TRY_STATUS(send_signal(process));  // The second one ends everything at once.
  }
  pollfd ended{.fd = process.get(), .events = POLLIN};
  while (poll(&ended, 1, -1) < 0 && errno == EINTR) {
  }
  return ok();
}

}  // namespace

int stop_job(const std::string& state_dir, const std::string& job, StopHow how) {
  const Status stopped = stop(state_dir, job, how);
  if (!stopped) {
    std::fprintf(stderr, "pdjob: %s\n", stopped.error().message.c_str());
    return kExitFailed;
  }
  std::printf("job %s has ended\n", job.c_str());
  return kExitOk;
}

}  // namespace pdjob::launcher
