#include "common/os/first_process.h"

#include <csignal>
#include <optional>

#include <sys/wait.h>
#include <unistd.h>

namespace pdjob {
namespace {

constexpr pid_t kFirst = 1;

int code_of(int status) { return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status); }

// Reaps what has ended. Returns the status of `main`, once it has.
std::optional<int> reap(pid_t main) {
  std::optional<int> ended;
  int status = 0;
  for (pid_t pid = 0; (pid = waitpid(-1, &status, WNOHANG)) > 0;) {
    if (pid == main) {
      ended = status;
    }
  }
  return ended;
}

}  // namespace

int reap_until_end_of(pid_t main) {
  sigset_t all;
  sigfillset(&all);
  for (;;) {
    if (const auto status = reap(main)) {
      return code_of(*status);
    }
    siginfo_t info{};
    const int signal = sigwaitinfo(&all, &info);
    const bool is_of_terminal = info.si_code == SI_KERNEL;
    if (signal > 0 && signal != SIGCHLD && !is_of_terminal) {
      kill(main, signal);
    }
  }
}

void reap_if_first_process() {
  if (getpid() != kFirst) {
    return;
  }
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  sigprocmask(SIG_SETMASK, &all, &before);
  const pid_t child = fork();
  if (child > 0) {
    _exit(reap_until_end_of(child));
  }
  // Without a child, zombies stay, but the program runs.
  sigprocmask(SIG_SETMASK, &before, nullptr);
}

}  // namespace pdjob
