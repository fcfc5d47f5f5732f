#include "common/os/first_process.h"

#include <csignal>

#include <gtest/gtest.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

namespace pdjob {
namespace {

// Runs `main` as the child of a process that gets orphans as the first one does. Returns the exit
// code of that process. Fails if it leaves a zombie.
template <class Main>
int code_of_first(const Main& main) {
  const pid_t first = fork();
  if (first == 0) {
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    sigset_t all;
    sigfillset(&all);
    sigprocmask(SIG_SETMASK, &all, nullptr);
    const pid_t child = fork();
    if (child == 0) {
      sigset_t none;
      sigemptyset(&none);
      sigprocmask(SIG_SETMASK, &none, nullptr);
      _exit(main());
    }
    const int code = reap_until_end_of(child);
    // Orphans that have ended are reaped, and those that live are no zombies.
    siginfo_t left{};
    const bool is_clean =
        waitid(P_ALL, 0, &left, WEXITED | WNOHANG | WNOWAIT) != 0 || left.si_pid == 0;
    _exit(is_clean ? code : 99);
  }
  int status = 0;
  waitpid(first, &status, 0);
  return WEXITSTATUS(status);
}

TEST(FirstProcess, EndsAsTheProgramDoes) {
  EXPECT_EQ(code_of_first([] { return 7; }), 7);
  EXPECT_EQ(code_of_first([] {
              std::raise(SIGKILL);
              return 0;
            }),
            128 + SIGKILL);
}

TEST(FirstProcess, ReapsOrphans) {
  EXPECT_EQ(code_of_first([] {
              const pid_t middle = fork();
              if (middle == 0) {
                const pid_t orphan = fork();
                _exit(orphan == 0 ? 0 : orphan > 0 ? 0 : 1);
              }
              int status = 0;
              waitpid(middle, &status, 0);
              usleep(20'000);
              return WEXITSTATUS(status) == 0 ? 3 : 1;
            }),
            3);
}

TEST(FirstProcess, PassesSignalsOn) {
  EXPECT_EQ(code_of_first([] {
              sigset_t wanted;
              sigemptyset(&wanted);
              sigaddset(&wanted, SIGTERM);
              sigprocmask(SIG_BLOCK, &wanted, nullptr);
              kill(getppid(), SIGTERM);
              int signal = 0;
              return sigwait(&wanted, &signal) == 0 && signal == SIGTERM ? 5 : 1;
            }),
            5);
}

}  // namespace
}  // namespace pdjob
