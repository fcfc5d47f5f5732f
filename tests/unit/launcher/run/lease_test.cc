#include "launcher/run/lease.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include <gtest/gtest.h>
#include <sys/stat.h>

namespace pdjob::launcher {
namespace {

namespace fs = std::filesystem;

class LeaseTest : public testing::Test {
 protected:
  LeaseTest() { EXPECT_NE(mkdtemp(path_.data()), nullptr); }
  ~LeaseTest() override { fs::remove_all(path_); }
  LeaseTest(const LeaseTest&) = delete;
  LeaseTest& operator=(const LeaseTest&) = delete;

  ErrorCode pass(uint64_t launcher, int64_t pid) const {
    const auto fence = Fence::pass(path_, launcher, pid);
    return fence ? ErrorCode{} : fence.error().code;
  }
  void renew(const Lease& lease) const {
    const auto fence = Fence::pass(path_, lease.launcher, lease.pid);
    ASSERT_TRUE(fence);
    EXPECT_TRUE(fence->renew(lease, Durable::kYes));
  }

  std::string path_ = "/tmp/pdjob-lease-XXXXXX";
};

TEST_F(LeaseTest, ALauncherPassesUntilALaterOneHasPassed) {
  EXPECT_FALSE(read_lease(path_));
  renew({1, 100, 5000});
  EXPECT_EQ(read_lease(path_), (Lease{1, 100, 5000}));
  renew({1, 100, 6000});
  renew({2, 200, 7000});
  EXPECT_EQ(pass(1, 100), ErrorCode::kCancelled);
  EXPECT_EQ(Fence::pass(path_, 1, 100).error().message,
            "another launcher of this job, pid 200, has taken over");
  renew({2, 200, 8000});
  EXPECT_EQ(read_lease(path_), (Lease{2, 200, 8000}));
}

TEST_F(LeaseTest, TheSameNumberOfAnotherProcessDoesNotPass) {
  renew({1, 100, 5000});
  EXPECT_EQ(pass(1, 101), ErrorCode::kCancelled) << "the folder was emptied, and claimed anew";
}

TEST_F(LeaseTest, WhileOnePassesNoOtherDoes) {
  const auto fence = Fence::pass(path_, 1, 100);
  ASSERT_TRUE(fence);
  EXPECT_EQ(pass(2, 200), ErrorCode::kUnavailable);
}

TEST_F(LeaseTest, ALeaseIsRenewedInPlace) {
  renew({1, 100, 5000});
  struct stat before{};
  struct stat after{};
  stat(lease_path(path_).c_str(), &before);
  renew({1, 100, 1'000'000'000'000});
  stat(lease_path(path_).c_str(), &after);
  EXPECT_EQ(before.st_ino, after.st_ino) << "a full disk would have no room for another file";
  EXPECT_EQ(before.st_size, after.st_size);
  EXPECT_EQ(after.st_mode & 077U, 0U);
}

TEST_F(LeaseTest, ADamagedLeaseIsNone) {
  std::ofstream(lease_path(path_)) << "rubbish";
  EXPECT_FALSE(read_lease(path_));
  renew({4, 100, 5000});
  EXPECT_EQ(read_lease(path_), (Lease{4, 100, 5000}));
}

}  // namespace
}  // namespace pdjob::launcher
