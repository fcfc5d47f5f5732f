#include "launcher/clusters/vital_signs.h"

#include <csignal>
#include <string>

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/os/real_clock.h"

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
  EXPECT_EQ(parse_vital_signs(status("R (running)")), VitalSigns{.turns = 15});
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

}  // namespace
}  // namespace pdjob::launcher
