#include "engine/threads/thread_board.h"

#include <csignal>
#include <optional>
#include <utility>
#include <vector>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/os/machine_share.h"

namespace pdjob::engine {
namespace {

using std::chrono::milliseconds;

constexpr uint32_t kCores = 64;  // More than the machine has.
constexpr Instant kStart = Instant(std::chrono::hours(1));

class ThreadBoardTest : public testing::Test {
 protected:
  void SetUp() override {
    const auto made = ThreadBoard::create(kCores);
    ASSERT_TRUE(made) << made.error().message;
    fd_ = *made;
    if (machine_share().cores() < 2) {
      GTEST_SKIP() << "one core: nothing to borrow";
    }
  }
  void TearDown() override { close(fd_); }

  ThreadBoard join(uint32_t own = 1) {
    auto joined = ThreadBoard::join(dup(fd_), own);
    EXPECT_TRUE(joined) << (joined ? "" : joined.error().message);
    return std::move(*joined);
  }

  int fd_ = -1;
};

TEST_F(ThreadBoardTest, AnEngineBorrowsWhileTheOtherHasNoStep) {
  ThreadBoard one = join();
  EXPECT_EQ(one.begin_step(kStart), 1U);
  one.end_step(kStart);
  ThreadBoard other = join();
  EXPECT_EQ(one.begin_step(kStart), 2U);
  EXPECT_EQ(other.begin_step(kStart), 1U);
  one.end_step(kStart);
  EXPECT_EQ(one.begin_step(kStart), 1U);
  other.end_step(kStart);
  one.end_step(kStart);
  EXPECT_EQ(one.begin_step(kStart + milliseconds(1)), 1U);  // The other is between two steps.
  one.end_step(kStart + milliseconds(1));
  EXPECT_EQ(one.begin_step(kStart + milliseconds(2)), 2U);
}

TEST_F(ThreadBoardTest, NobodyBorrowsBeyondTheCoresOfTheBoard) {
  const auto one_core = ThreadBoard::create(1);
  ASSERT_TRUE(one_core);
  auto one = ThreadBoard::join(dup(*one_core), 1);
  auto other = ThreadBoard::join(*one_core, 1);
  ASSERT_TRUE(one && other);
  EXPECT_EQ(one->begin_step(kStart), 1U);
}

TEST_F(ThreadBoardTest, AnEngineThatLeftLendsNothing) {
  ThreadBoard one = join();
  {
    ThreadBoard other = join();
    EXPECT_EQ(one.begin_step(kStart), 2U);
  }
  EXPECT_EQ(one.begin_step(kStart), 1U);
}

TEST_F(ThreadBoardTest, AKilledEngineNeitherHoldsNorLendsThreads) {
  ThreadBoard idle = join();
  int told[2];
  ASSERT_EQ(pipe2(told, O_CLOEXEC), 0);
  const pid_t child = fork();
  if (child == 0) {
    auto joined = ThreadBoard::join(dup(fd_), 1);
    const char began = joined && joined->begin_step(kStart) == 2 ? 'y' : 'n';
    if (write(told[1], &began, 1) == 1) {
      pause();
    }
    _exit(0);
  }
  char began = 0;
  ASSERT_EQ(read(told[0], &began, 1), 1);
  EXPECT_EQ(began, 'y');
  ThreadBoard one = join();
  EXPECT_EQ(one.begin_step(kStart), 1U);
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  EXPECT_EQ(one.begin_step(kStart), 2U);
  // The next engine gets the dead one's place, with numbers of its own.
  ThreadBoard next = join();
  EXPECT_GE(one.begin_step(kStart), 2U);
  close(told[0]);
  close(told[1]);
}

TEST_F(ThreadBoardTest, ABoardHasABound) {
  std::vector<ThreadBoard> engines;
  std::optional<Error> refused;
  while (!refused && engines.size() < 1000) {
    auto joined = ThreadBoard::join(dup(fd_), 1);
    if (joined) {
      engines.push_back(std::move(*joined));
    } else {
      refused = joined.error();
    }
  }
  EXPECT_EQ(engines.size(), 256U);
  EXPECT_EQ(refused.value_or(Error{}).code, ErrorCode::kUnsupported);
  engines.pop_back();
  EXPECT_TRUE(ThreadBoard::join(dup(fd_), 1));
}

TEST_F(ThreadBoardTest, OtherMemoryIsRefused) {
  EXPECT_FALSE(ThreadBoard::join(-1, 1));
  const int other = memfd_create("other", MFD_CLOEXEC);
  EXPECT_FALSE(ThreadBoard::join(other, 1));
}

}  // namespace
}  // namespace pdjob::engine
