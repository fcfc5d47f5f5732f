#include "launcher/cli/stop_command.h"

#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>

#include <poll.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "common/exit_code.h"
#include "common/os/real_clock.h"
#include "common/result.h"
#include "launcher/clusters/vital_signs.h"
#include "launcher/job_clusters.h"
#include "launcher/job_folder.h"
#include "launcher/job_run.h"
#include "launcher/launcher_process.h"
#include "launcher/run/held_lock.h"
#include "launcher/run/local_agent.h"
#include "net/loop/socket.h"

namespace pdjob::launcher {

namespace {

constexpr Duration kLook = std::chrono::seconds(1);
constexpr int kLooksAsleepMax = 10;

Status send_signal(const net::Fd& process, int signal) {
  return syscall(SYS_pidfd_send_signal, process.get(), signal, nullptr, 0) == 0
             ? ok()
             : Status(system_error("cannot signal the launcher"));
}

// The launcher's own stop_timeout bounds the wait. kTimeout: its lease has expired, and it does not
// run. Another launcher can take over. Without a lease, a launcher that stands still is told of.
Status wait_for_end(const net::Fd& process, int64_t pid, const std::string& state_dir,
                    const std::string& job) {
  pollfd ended{.fd = process.get(), .events = POLLIN};
  VitalSigns before;
  int looks_asleep = 0;
  while (poll(&ended, 1, static_cast<int>(kLook / std::chrono::milliseconds(1))) != 1) {
    const VitalSigns now = vital_signs_of(pid, Instant()).value_or(VitalSigns{});
    looks_asleep = now.slept_since(before) ? looks_asleep + 1 : 0;
    before = now;
    const auto silent = JobFolder::silent_launcher(state_dir, job, real_now());
    if (looks_asleep > 0 && silent && *silent == pid) {
      return Error{ErrorCode::kTimeout, "the launcher stands still"};
    }
    if (looks_asleep == kLooksAsleepMax) {
      std::fprintf(stderr,
                   "pdjob: the launcher, pid %lld, has not run for %d s. If it does not end, run "
                   "`kill -9 %lld`, and `pdjob stop` again if the job then still runs\n",
                   static_cast<long long>(pid), kLooksAsleepMax, static_cast<long long>(pid));
    }
  }
  return ok();
}

// A launcher that is stopped (SIGSTOP, Ctrl-Z) goes on, because only then can it end the job.
Status stop(const std::string& state_dir, const std::string& job, StopHow how) {
  PDJOB_TRY(const LauncherAddress launcher, JobFolder::find(state_dir, job));
  // The launcher holds the folder. Another process may have its number by now.
  PDJOB_TRY(const net::Fd process, open_holder(launcher.pid, state_dir + "/" + job));
  PDJOB_TRY(const LauncherAddress again, JobFolder::find(state_dir, job));
  if (again.pid != launcher.pid) {
    return Error{ErrorCode::kUnavailable, "the job was started again just now: ask once more"};
  }
  PDJOB_TRY_STATUS(send_signal(process, SIGTERM));
  if (how == StopHow::kNow) {
    // The second one ends everything at once. One of the same number could merge with the first.
    PDJOB_TRY_STATUS(send_signal(process, SIGHUP));
  }
  PDJOB_TRY_STATUS(send_signal(process, SIGCONT));
  return wait_for_end(process, launcher.pid, state_dir, job);
}

// A launcher that is just starting says soon where it is.
Status stop_patiently(const std::string& state_dir, const std::string& job, StopHow how) {
  constexpr Duration kPatience = std::chrono::seconds(10);
  constexpr timespec kPause{.tv_sec = 0, .tv_nsec = 200'000'000};
  const Instant begin = real_now();
  Status stopped = stop(state_dir, job, how);
  while (!stopped && stopped.error().code == ErrorCode::kUnavailable &&
         real_now() < begin + kPatience) {
    nanosleep(&kPause, nullptr);
    stopped = stop(state_dir, job, how);
  }
  return stopped;
}

// The job as it was started, maybe for a batch. Its launcher is gone.
Result<JobConfig> config_of(const JobLedger& ledger, const std::string& state_dir,
                            const std::string& job, const Places& places) {
  Places without_files = places;  // Its processes run already.
  without_files.models_here = false;
  PDJOB_TRY(JobConfig config,
            parse_job_config(ledger.config_source, ledger.config_text, without_files));
  if (config.name != job) {
    config = batch_job(std::move(config));
  }
  config.launcher.state_dir = state_dir;
  if (const std::string why = JobRun::objection(ledger, config); !why.empty()) {
    return Error{ErrorCode::kUnsupported, why};
  }
  return config;
}

bool is_left_behind(const std::string& state_dir, const std::string& job) {
  const auto ledger = JobFolder::ledger(state_dir, job);
  return LocalAgent::runs(state_dir + "/" + job) || (ledger && has_remote_nodes(*ledger));
}

// In a process of its own, because a launcher that cannot take over ends its process.
int run_apart(const JobConfig& config, const Places& places, RunHow how) {
  std::fflush(nullptr);
  const pid_t child = fork();
  if (child == 0) {
    const int code = run_job(config, places, how);
    std::fflush(nullptr);
    std::_Exit(code);
  }
  int status = 0;
  while (child > 0 && waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  return child > 0 && WIFEXITED(status) ? WEXITSTATUS(status) : kExitFailed;
}

// Ends what a launcher left that ended too early. This process becomes the job's launcher, adopts
// everything, and stops. A run that it cannot adopt loses this machine's agent, which ends its
// processes; those on other machines end by their orphan timeout.
int stop_left_behind(const std::string& state_dir, const std::string& job, StopHow how,
                     const Places& places) {
  const std::string folder = state_dir + "/" + job;
  const auto ledger = JobFolder::ledger(state_dir, job);
  const auto config = ledger ? config_of(*ledger, state_dir, job, places) : ledger.error();
  if (config) {
    const int code =
        run_apart(*config, places, how == StopHow::kNow ? RunHow::kStopNow : RunHow::kStop);
    const bool could_not = code == kExitFailed || code == kExitNotPlaced;
    const auto launcher = JobFolder::find(state_dir, job);
    const bool left_alone = !launcher && launcher.error().code == ErrorCode::kNotFound;
    if (!could_not || !left_alone || !LocalAgent::runs(folder)) {
      return code;
    }
  }
  std::fprintf(stderr,
               "pdjob: what runs of job %s cannot be adopted%s: this machine's processes are "
               "ended at once, and those of other machines by launcher.orphan_timeout\n",
               job.c_str(), config ? "" : (" (" + config.error().message + ")").c_str());
  LocalAgent::end(folder, Duration{});
  return LocalAgent::runs(folder) ? kExitFailed : kExitOk;
}

}  // namespace

int stop_job(const std::string& state_dir, const std::string& job, StopHow how,
             const Places& places) {
  const Status stopped = stop_patiently(state_dir, job, how);
  const bool launcher_is_gone = stopped || stopped.error().code == ErrorCode::kNotFound ||
                                stopped.error().code == ErrorCode::kTimeout;
  int code = stopped ? kExitOk : kExitFailed;
  // The launcher may have died, also just now, before it had ended the job.
  if (launcher_is_gone && is_left_behind(state_dir, job)) {
    code = stop_left_behind(state_dir, job, how, places);
    if (code == kExitUsage && stop_patiently(state_dir, job, how)) {
      code = kExitOk;  // Another launcher of the job had come just before.
    }
  } else if (!stopped) {
    std::fprintf(stderr, "pdjob: %s\n", stopped.error().message.c_str());
  }
  if (code == kExitOk) {
    std::printf("job %s has ended\n", job.c_str());
  }
  return code;
}

}  // namespace pdjob::launcher
