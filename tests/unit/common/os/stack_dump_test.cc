#include "common/os/stack_dump.h"

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

std::string dump() {
  testing::internal::CaptureStderr();
  raise(SIGQUIT);           // This thread handles it, through tgkill(), and asks no other.
  kill(getpid(), SIGQUIT);  // Any thread may handle it; that one asks the others.
  std::string text;
  // The handler runs on a thread that does not block the signal. That is this one, before kill()
  // returns, or soon after the other one.
  for (int i = 0; i < 10000 && !text.ends_with("--- end of stacks\n"); ++i) {
    text += testing::internal::GetCapturedStderr();
    testing::internal::CaptureStderr();
    usleep(1000);
  }
  return text + testing::internal::GetCapturedStderr();
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
  std::string text = dump();
  // A busy machine may not run the other thread in time.
  for (int again = 0; again < 4 && count(text, "does not answer") > 0; ++again) {
    text = dump();
  }
  EXPECT_EQ(count(text, "--- stacks of process "), 1U) << text;
  EXPECT_NE(text.find(" stuck:\n"), std::string::npos) << text;
  EXPECT_GE(count(text, "thread "), 2U) << text;
  EXPECT_EQ(count(text, "does not answer"), 0U) << text;
  // Each of the two stacks has frames.
  EXPECT_GE(count(text, "[0x"), 4U) << text;
  done = true;
  stuck.join();
}

}  // namespace
}  // namespace pdjob
