#include "launcher/cli/stop_command.h"

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>

#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "common/exit_code.h"
#include "common/result.h"
#include "launcher/clusters/local_cluster.h"
#include "launcher/job_folder.h"
#include "launcher/job_run.h"
#include "launcher/launcher_process.h"
#include "launcher/run/local_agent.h"
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

// The job as it was started. Its launcher is gone.
Result<JobConfig> config_of(const Ledger& ledger, const std::string& state_dir,
                            const Places& places) {
  PDJOB_TRY(JobConfig config, parse_job_config(ledger.config_source, ledger.config_text, places));
  config.launcher.state_dir = state_dir;
  if (const std::string why = JobRun::objection(ledger, config); !why.empty()) {
    return Error{ErrorCode::kUnsupported, why};
  }
  return config;
}

bool has_remote_nodes(const Ledger& ledger) {
  return std::ranges::any_of(ledger.job.nodes, [](const Node& node) {
    return node.name != LocalCluster::this_node().name;
  });
}

// Ends what a launcher left that ended too early. This process becomes the job's launcher, adopts
// everything, and stops. A run that it cannot adopt loses this machine's agent, which ends its
// processes; those on other machines end by their orphan timeout.
int stop_left_behind(const std::string& state_dir, const std::string& job, StopHow how,
                     const Places& places) {
  const std::string folder = state_dir + "/" + job;
  const auto ledger = JobFolder::ledger(state_dir, job);
  const auto config = ledger ? config_of(*ledger, state_dir, places) : ledger.error();
  if (config) {
    return run_job(*config, how == StopHow::kNow ? RunHow::kStopNow : RunHow::kStop);
  }
  std::fprintf(stderr,
               "pdjob: what runs of job %s cannot be adopted (%s): this machine's processes are "
               "ended at once, and those of other machines by launcher.orphan_timeout\n",
               job.c_str(), config.error().message.c_str());
  LocalAgent::end(folder, Duration{});
  return LocalAgent::runs(folder) ? kExitFailed : kExitOk;
}

}  // namespace

int stop_job(const std::string& state_dir, const std::string& job, StopHow how,
             const Places& places) {
  const auto running = JobFolder::find(state_dir, job);
  const auto ledger = JobFolder::ledger(state_dir, job);
  if (!running && running.error().code == ErrorCode::kNotFound &&
      (LocalAgent::runs(state_dir + "/" + job) || (ledger && has_remote_nodes(*ledger)))) {
    const int code = stop_left_behind(state_dir, job, how, places);
    if (code == kExitOk) {
      std::printf("job %s has ended\n", job.c_str());
    }
    return code;
  }
  const Status stopped = stop(state_dir, job, how);
  if (!stopped) {
    std::fprintf(stderr, "pdjob: %s\n", stopped.error().message.c_str());
    return kExitFailed;
  }
  std::printf("job %s has ended\n", job.c_str());
  return kExitOk;
}

}  // namespace pdjob::launcher
