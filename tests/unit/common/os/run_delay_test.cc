#include "common/os/run_delay.h"

#include <atomic>
#include <fstream>
#include <thread>
#include <vector>

#include <gtest/gtest.h>
#include <sched.h>

namespace pdjob {
namespace {

bool kernel_tells() { return std::ifstream("/proc/self/schedstat").good(); }

// Two threads on one core: one of them always waits.
TEST(RunDelay, GrowsWhileThreadsShareACore) {
  if (!kernel_tells()) {
    GTEST_SKIP() << "this kernel has no schedstat";
  }
  const Duration before = run_delay();
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
  while (run_delay() < before + std::chrono::milliseconds(50)) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  done = true;
  for (std::thread& thread : busy) {
    thread.join();
  }
}

}  // namespace
}  // namespace pdjob
