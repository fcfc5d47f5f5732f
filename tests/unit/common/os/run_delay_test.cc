#include "common/os/run_delay.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <csignal>
#include <fstream>
#include <thread>
#include <vector>

#include <gtest/gtest.h>
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

namespace pdjob {
namespace {

bool kernel_tells() { return std::ifstream("/proc/self/schedstat").good(); }

// Two threads on one core: one of them always waits.
TEST(RunDelay, GrowsWhileThreadsShareACore) {
  if (!kernel_tells()) {
    GTEST_SKIP() << "this kernel has no schedstat";
  }
  const RunDelays before = run_delays(getpid());
  const int core = sched_getcpu();
  std::atomic<bool> done = false;
  std::vector<std::thread> busy;
  for (int i = 0; i < 2; ++i) {
    busy.emplace_back([&done, core] {
      cpu_set_t one;
      CPU_ZERO(&one);
      CPU_SET(core, &one);
      sched_setaffinity(0, sizeof one, &one);
      while (!done) {
      }
    });
  }
  while (waits_between(before, run_delays(getpid())).longest < std::chrono::milliseconds(50)) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  done = true;
  for (std::thread& thread : busy) {
    thread.join();
  }
}

TEST(RunDelay, TheLongestWaitIsThatOfOneThreadAndNewThreadsCountWhole) {
  using std::chrono::seconds;
  const RunDelays before = {{1, seconds(100)}, {2, seconds(7)}, {3, seconds(50)}};
  const RunDelays now = {{1, seconds(101)}, {2, seconds(10)}, {4, seconds(2)}};
  EXPECT_EQ(waits_between(before, now).longest, seconds(3));
  EXPECT_EQ(waits_between(before, now).sum, seconds(6));
  EXPECT_EQ(waits_between(before, {{3, seconds(1)}}).longest, seconds(1)) << "its id was reused";
}

TEST(RunDelay, AProcessThatIsGoneHasNone) { EXPECT_TRUE(run_delays(INT32_MAX).empty()); }

TEST(RunDelay, DescendantsAreChildrenAndTheirChildren) {
  std::array<int, 2> ends{};
  ASSERT_EQ(pipe(ends.data()), 0);
  const pid_t child = fork();
  if (child == 0) {
    const pid_t grandchild = fork();
    if (grandchild > 0) {
      static_cast<void>(!write(ends[1], &grandchild, sizeof grandchild));
    }
    pause();
    _exit(0);
  }
  pid_t grandchild = 0;
  ASSERT_EQ(read(ends[0], &grandchild, sizeof grandchild), ssize_t{sizeof grandchild});
  const std::vector<int64_t> found = descendants_of(getpid());
  const std::vector<int64_t> of_child = descendants_of(child);
  for (const pid_t each : {grandchild, child}) {
    kill(each, SIGKILL);
  }
  ASSERT_EQ(waitpid(child, nullptr, 0), child);
  EXPECT_EQ(std::ranges::count(found, child), 1);
  EXPECT_EQ(std::ranges::count(found, grandchild), 1);
  EXPECT_EQ(of_child, std::vector<int64_t>{grandchild});
}

}  // namespace
}  // namespace pdjob
