#include "worker/foreign/engine_guard.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <optional>
#include <sstream>
#include <string>
#include <system_error>
#include <vector>

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/exit_code.h"
#include "common/os/descriptors.h"
#include "common/parse_number.h"
#include "net/loop/socket.h"

namespace pdjob::worker {
namespace {

// Processes that do not die of SIGKILL hang in the kernel, and cannot be waited for.
constexpr int kKillRoundsMax = 1000;
constexpr useconds_t kKillRoundMicroseconds = 10'000;

// "PID (NAME) STATE PARENT ...", where the name may hold anything.
pid_t parent_in(const std::string& stat) {
  std::istringstream rest(stat.substr(std::min(stat.rfind(')') + 1, stat.size())));
  std::string state;
  pid_t parent = 0;
  rest >> state >> parent;
  return parent;
}

// Some kernels have no file of children.
std::vector<pid_t> children_by_parent() {
  std::vector<pid_t> pids;
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator("/proc", ignored)) {
    const auto pid = parse_number<pid_t>(entry.path().filename().string());
    std::string stat;
    if (pid && std::getline(std::ifstream(entry.path() / "stat"), stat) &&
        parent_in(stat) == getpid()) {
      pids.push_back(*pid);
    }
  }
  return pids;
}

std::vector<pid_t> children() {
  std::vector<pid_t> pids;
  std::ifstream file("/proc/self/task/" + std::to_string(getpid()) + "/children");
  for (pid_t pid = 0; file >> pid;) {
    pids.push_back(pid);
  }
  return pids.empty() ? children_by_parent() : pids;
}

bool has_children() { return waitpid(-1, nullptr, WNOHANG) >= 0 || errno != ECHILD; }

// No other signal may end the guard before its work is done. The kernel sends SIGHUP to its process
// group when the worker dies while the engine is stopped.
void block_all_signals() {
  sigset_t all;
  sigfillset(&all);
  for (const int fault : {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT, SIGTRAP, SIGSYS}) {
    sigdelset(&all, fault);
  }
  sigprocmask(SIG_SETMASK, &all, nullptr);
}

sigset_t watched_signals() {
  sigset_t set;
  sigemptyset(&set);
  for (const int signal : {SIGTERM, SIGINT, SIGCHLD}) {
    sigaddset(&set, signal);
  }
  return set;
}

[[noreturn]] void become_engine(const std::vector<char*>& argv, pid_t guard) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != guard) {
    _exit(kExitFailed);  // The guard died between fork and prctl.
  }
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  restore_descriptor_limit();
  execv(argv.front(), argv.data());
  constexpr char kMessage[] = "pdjob: cannot execute the engine's program\n";
  static_cast<void>(!write(STDERR_FILENO, kMessage, sizeof kMessage - 1));
  _exit(127);
}

// Reaps what has ended. Returns the status of the engine, once it has.
std::optional<int> reap(pid_t engine) {
  std::optional<int> ended;
  int status = 0;
  for (pid_t pid = 0; (pid = waitpid(-1, &status, WNOHANG)) > 0;) {
    if (pid == engine) {
      ended = status;
    }
  }
  return ended;
}

// Returns the engine's status, or nothing once the worker is gone or wants the end.
std::optional<int> watch(pid_t engine, int channel, int signals) {
  std::array<pollfd, 2> fds{{{.fd = channel, .events = POLLIN, .revents = 0},
                             {.fd = signals, .events = POLLIN, .revents = 0}}};
  for (;;) {
    if (poll(fds.data(), fds.size(), -1) < 0 && errno != EINTR) {
      return std::nullopt;
    }
    if (fds[0].revents != 0) {
      return std::nullopt;
    }
    signalfd_siginfo signal{};
    while (read(signals, &signal, sizeof signal) == sizeof signal) {
      if (signal.ssi_signo != SIGCHLD) {
        kill(engine, static_cast<int>(signal.ssi_signo));
      }
    }
    if (const auto status = reap(engine)) {
      return status;
    }
  }
}

}  // namespace

Result<Pipe> open_pipe() {
  std::array<int, 2> ends{};
  if (pipe2(ends.data(), O_CLOEXEC) != 0) {
    return system_error("pipe");
  }
  return Pipe{net::Fd(ends[0]), net::Fd(ends[1])};
}

void adopt_orphans() { prctl(PR_SET_CHILD_SUBREAPER, 1); }

void end_children() {
  for (int round = 0; round < kKillRoundsMax; ++round) {
    for (const pid_t pid : children()) {
      kill(pid, SIGKILL);
    }
    while (waitpid(-1, nullptr, WNOHANG) > 0) {
    }
    if (!has_children()) {
      return;
    }
    usleep(kKillRoundMicroseconds);
  }
}

int end_as(const net::ChildExit& exit) {
  if (exit.signal == 0) {
    return exit.code;
  }
  const rlimit no_core{.rlim_cur = 0, .rlim_max = 0};
  setrlimit(RLIMIT_CORE, &no_core);
  std::signal(exit.signal, SIG_DFL);
  sigset_t only;
  sigemptyset(&only);
  sigaddset(&only, exit.signal);
  sigprocmask(SIG_UNBLOCK, &only, nullptr);
  std::raise(exit.signal);
  return 128 + exit.signal;  // A signal that ends nobody.
}

int run_engine_guard(int channel, const std::vector<std::string>& command) {
  // Its parent's death must not kill it: it has to end the engine's processes first.
  prctl(PR_SET_PDEATHSIG, 0);
  adopt_orphans();
  fcntl(channel, F_SETFD, FD_CLOEXEC);
  block_all_signals();
  const sigset_t watched = watched_signals();
  const net::Fd signals(signalfd(-1, &watched, SFD_NONBLOCK | SFD_CLOEXEC));
  std::vector<char*> argv;
  for (const std::string& argument : command) {
    argv.push_back(const_cast<char*>(argument.c_str()));
  }
  argv.push_back(nullptr);
  const pid_t guard = getpid();
  const pid_t engine = fork();
  if (engine == 0) {
    become_engine(argv, guard);
  }
  if (engine < 0 || !signals.valid()) {
    std::fprintf(stderr, "pdjob: cannot start the engine: %s\n", std::strerror(errno));
    end_children();
    return kExitFailed;
  }
  const std::optional<int> status = watch(engine, channel, signals.get());
  end_children();
  if (!status) {
    return kExitFailed;
  }
  return WIFSIGNALED(*status) ? end_as({.how = {}, .code = 0, .signal = WTERMSIG(*status)})
                              : WEXITSTATUS(*status);
}

}  // namespace pdjob::worker
