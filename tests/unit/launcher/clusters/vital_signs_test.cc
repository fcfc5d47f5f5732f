#include "launcher/clusters/vital_signs.h"

#include <csignal>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/os/real_clock.h"
#include "common/os/run_delay.h"

namespace pdjob::launcher {
namespace {

std::string status(const std::string& state) {
  return "Name:\tpdjob\nState:\t" + state + "\nvoluntary_ctxt_switches:\t12\n" +
         "nonvoluntary_ctxt_switches:\t3\n";
}

TEST(VitalSigns, SleepingAndStoppedAreAsleepRunningAndWaitingForADiskAreNot) {
  EXPECT_EQ(parse_vital_signs(status("S (sleeping)")), (VitalSigns{.asleep = true, .turns = 15}));
  EXPECT_EQ(parse_vital_signs(status("T (stopped)")),
            (VitalSigns{.asleep = true, .stopped = true, .turns = 15}));
  EXPECT_EQ(parse_vital_signs(status("R (running)")), (VitalSigns{.runnable = true, .turns = 15}));
  EXPECT_EQ(parse_vital_signs(status("D (disk sleep)")), VitalSigns{.turns = 15});
}

TEST(VitalSigns, WhatIsNoStatusHasNone) {
  for (const char* text : {"", "State:", "State:\tS\n", "voluntary_ctxt_switches:\t1\n",
                           "State:\tS\nvoluntary_ctxt_switches:\tx\n"}) {
    EXPECT_FALSE(parse_vital_signs(text)) << text;
  }
}

TEST(VitalSigns, ARealProcessThatIsStoppedShowsIt) {
  const pid_t child = fork();
  if (child == 0) {
    raise(SIGSTOP);
    _exit(0);
  }
  int how = 0;
  ASSERT_EQ(waitpid(child, &how, WUNTRACED), child);
  const auto signs = vital_signs_of(child, real_now());
  kill(child, SIGKILL);
  ASSERT_EQ(waitpid(child, &how, 0), child);
  ASSERT_TRUE(signs);
  EXPECT_TRUE(signs->stopped);
  EXPECT_GT(signs->at_ms, 0U);
  EXPECT_FALSE(vital_signs_of(child, real_now()));
}

// Two processes on one core: one of them always waits.
TEST(VitalSigns, ARealProcessThatWaitsForItsCoreShowsIt) {
  if (run_delays(getpid()).empty()) {
    GTEST_SKIP() << "this kernel has no schedstat";
  }
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(sched_getcpu(), &one);
  std::vector<pid_t> children;
  for (int i = 0; i < 2; ++i) {
    children.push_back(fork());
    if (children.back() == 0) {
      sched_setaffinity(0, sizeof one, &one);
      for (;;) {
      }
    }
  }
  VitalSigns signs;
  while (signs.waited_us < 50'000) {
    signs = vital_signs_of(children.front(), real_now()).value_or(VitalSigns{});
    usleep(5000);
  }
  EXPECT_EQ(signs.all_waited_us, signs.waited_us) << "it has one thread";
  EXPECT_TRUE(signs.runnable && signs.any_runnable);
  EXPECT_GT(signs.ran_us, 0U);
  EXPECT_GT(vital_signs_with_descendants(getpid(), real_now())->all_waited_us, signs.waited_us);
  for (const pid_t child : children) {
    kill(child, SIGKILL);
    waitpid(child, nullptr, 0);
  }
}

}  // namespace
}  // namespace pdjob::launcher
