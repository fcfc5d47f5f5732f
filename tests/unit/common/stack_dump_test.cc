#include "common/stack_dump.h"

#include <atomic>
#include <csignal>
#include <string>
#include <thread>

#include <gtest/gtest.h>
#include <pthread.h>
#include <unistd.h>

namespace pdjob {
namespace {

size_t count(const std::string& text, const std::string& what) {
  size_t found = 0;
  for (size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + 1)) {
    ++found;
  }
  return found;
}

TEST(StackDump, WritesTheStackOfEveryThreadAndTheProcessGoesOn) {
  install_stack_dump();
  std::atomic<bool> started = false;
  std::atomic<bool> done = false;
  std::thread stuck([&] {
    pthread_setname_np(pthread_self(), "stuck");
    started = true;
    while (!done) {
    }
  });
  while (!started) {
    std::this_thread::yield();
  }
  testing::internal::CaptureStderr();
  raise(SIGQUIT);           // Handled by this very thread, with tgkill(): it asks nobody.
  kill(getpid(), SIGQUIT);  // By any thread: it asks the others.
  std::string text;
  // The handler runs on a thread that does not block the signal: this one, before kill() returns,
  // or the other one soon after.
  for (int i = 0; i < 10000 && !text.ends_with("--- end of stacks\n"); ++i) {
    text += testing::internal::GetCapturedStderr();
    testing::internal::CaptureStderr();
    usleep(1000);
  }
  text += testing::internal::GetCapturedStderr();
  EXPECT_EQ(count(text, "--- stacks of process "), 1U) << text;
  EXPECT_NE(text.find(" stuck:\n"), std::string::npos) << text;
  EXPECT_GE(count(text, "thread "), 2U) << text;
  EXPECT_EQ(count(text, "does not answer"), 0U) << text;
  // A stack has frames of something.
  EXPECT_GE(count(text, "[0x"), 4U) << text;
  done = true;
  stuck.join();
}

}  // namespace
}  // namespace pdjob
