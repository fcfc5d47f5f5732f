#include "launcher/run/held_lock.h"

#include <csignal>
#include <cstdlib>
#include <string>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

namespace pdjob::launcher {
namespace {

using std::chrono::seconds;

class HeldLock : public testing::Test {
 protected:
  HeldLock() { close(mkstemp(path_.data())); }
  ~HeldLock() override { unlink(path_.c_str()); }
  HeldLock(const HeldLock&) = delete;
  HeldLock& operator=(const HeldLock&) = delete;

  // A child that holds the lock, or only lives.
  pid_t start(bool holds) {
    int ready[2];
    EXPECT_EQ(pipe(ready), 0);
    const pid_t pid = fork();
    if (pid == 0) {
      const int file = holds ? open(path_.c_str(), O_RDWR) : -1;
      flock(file, LOCK_EX);
      close(ready[1]);
      pause();
      _exit(0);
    }
    close(ready[1]);
    char byte = 0;
    EXPECT_EQ(read(ready[0], &byte, 1), 0);
    close(ready[0]);
    return pid;
  }

  std::string path_ = testing::TempDir() + "/held-XXXXXX";
};

TEST_F(HeldLock, TheHolderIsEndedEvenIfItStandsStill) {
  EXPECT_FALSE(is_locked(path_));
  const pid_t pid = start(true);
  EXPECT_TRUE(is_locked(path_));
  kill(pid, SIGSTOP);
  EXPECT_TRUE(end_holder(pid, path_, SIGKILL, seconds(10)));
  EXPECT_FALSE(is_locked(path_));
  waitpid(pid, nullptr, 0);
}

// Otherwise a launcher without descriptors would think that its machine's agent had ended.
TEST_F(HeldLock, WithoutDescriptorsALockIsNotTakenForFree) {
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  const rlimit none{.rlim_cur = 0, .rlim_max = before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &none), 0);
  EXPECT_TRUE(is_locked(path_));
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
  EXPECT_FALSE(is_locked(path_));
  EXPECT_FALSE(is_locked(path_ + "-none"));
}

TEST_F(HeldLock, AProcessThatDoesNotHoldItIsNotTouched) {
  const pid_t stranger = start(false);
  EXPECT_EQ(end_holder(stranger, path_, SIGKILL, seconds(10)).error().code, ErrorCode::kNotFound);
  EXPECT_EQ(open_holder(stranger, path_).error().code, ErrorCode::kNotFound);
  EXPECT_EQ(kill(stranger, 0), 0);
  for (const int64_t pid : {int64_t{0}, int64_t{1}, int64_t{-1}}) {
    EXPECT_FALSE(end_holder(pid, path_, SIGKILL, seconds(10)));
  }
  kill(stranger, SIGKILL);
  waitpid(stranger, nullptr, 0);
}

}  // namespace
}  // namespace pdjob::launcher
