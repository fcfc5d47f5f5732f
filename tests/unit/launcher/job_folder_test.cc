#include "launcher/job_folder.h"

#include <cstdlib>
#include <filesystem>
#include <string>

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include "launcher/run/lease.h"

namespace pdjob::launcher {
namespace {

namespace fs = std::filesystem;
using std::chrono::seconds;

class JobFolderTest : public testing::Test {
 protected:
  JobFolderTest() {
    EXPECT_NE(mkdtemp(path_.data()), nullptr);
    config_.name = "j";
    config_.launcher.state_dir = path_ + "/state";
    config_.launcher.log_dir = path_ + "/logs";
  }
  ~JobFolderTest() override { fs::remove_all(path_); }
  JobFolderTest(const JobFolderTest&) = delete;
  JobFolderTest& operator=(const JobFolderTest&) = delete;

  Result<JobFolder> claim() const { return JobFolder::claim(config_, now_); }
  static JobLedger ledger(uint64_t launcher, size_t config_bytes = 10) {
    JobLedger made;
    made.launcher = launcher;
    made.config_text = std::string(config_bytes, 'c');
    return made;
  }
  Result<JobLedger> read() const { return JobFolder::ledger(config_.launcher.state_dir, "j"); }
  std::string folder() const { return config_.launcher.state_dir + "/j"; }

  std::string path_ = "/tmp/pdjob-folder-XXXXXX";
  JobConfig config_;
  const Instant now_{seconds(1000)};
};

TEST_F(JobFolderTest, TheLedgerIsTheLastOneThatWasSaved) {
  auto folder = claim();
  ASSERT_TRUE(folder);
  ASSERT_TRUE(folder->begin_lease(1, now_));
  for (const size_t bytes : {10UL, 100'000UL, 1UL, 300'000UL, 20UL}) {
    ASSERT_TRUE(folder->save(ledger(1, bytes)));
    const auto found = read();
    ASSERT_TRUE(found) << found.error().message;
    EXPECT_EQ(*found, ledger(1, bytes));
  }
  folder->forget_run(1);
  EXPECT_EQ(read().error().code, ErrorCode::kNotFound);
  EXPECT_FALSE(fs::exists(folder->path() + "/ledger.spare"));
}

TEST_F(JobFolderTest, ALedgerThatIsCutOffIsDamaged) {
  auto folder = claim();
  ASSERT_TRUE(folder->begin_lease(1, now_));
  ASSERT_TRUE(folder->save(ledger(1)));
  for (const size_t bytes : {60UL, 8UL, 7UL, 0UL}) {
    fs::resize_file(folder->path() + "/ledger", bytes);
    EXPECT_EQ(read().error().code, ErrorCode::kCorrupt) << bytes;
  }
}

TEST_F(JobFolderTest, TwoFilesOfALedgerTakeTurnsSoThatAFullDiskDoesNoHarm) {
  auto folder = claim();
  ASSERT_TRUE(folder->begin_lease(1, now_));
  ASSERT_TRUE(folder->save(ledger(1)));
  ASSERT_TRUE(folder->save(ledger(1, 11)));
  const auto inodes = [&] {
    struct stat one{};
    struct stat other{};
    EXPECT_EQ(stat((folder->path() + "/ledger").c_str(), &one), 0);
    EXPECT_EQ(stat((folder->path() + "/ledger.spare").c_str(), &other), 0);
    EXPECT_GT(one.st_blocks, 0);
    return std::pair(one.st_ino, other.st_ino);
  };
  const auto before = inodes();
  ASSERT_TRUE(folder->save(ledger(1, 12)));
  EXPECT_EQ(inodes(), std::pair(before.second, before.first));
}

TEST_F(JobFolderTest, AReplacedLauncherOverwritesNothingOfItsSuccessor) {
  auto folder = claim();
  ASSERT_TRUE(folder->begin_lease(1, now_));
  ASSERT_TRUE(folder->save(ledger(1)));
  {
    const auto next = Fence::pass(folder->path(), 2, getpid() + 1);
    ASSERT_TRUE(next->renew({2, getpid() + 1, 0}, Durable::kYes));
  }
  EXPECT_EQ(folder->save(ledger(1, 11)).error().code, ErrorCode::kCancelled);
  EXPECT_EQ(folder->renew_lease(1, now_).error().code, ErrorCode::kCancelled);
  folder->forget_run(1);
  EXPECT_EQ(*read(), ledger(1));
  EXPECT_EQ(folder->last_launcher(), 2U);
}

TEST_F(JobFolderTest, AFolderThatWasReplacedIsNotWrittenTo) {
  auto folder = claim();
  ASSERT_TRUE(folder->publish({.pid = 1, .admin = "a", .key = "k"}));
  fs::rename(path_ + "/state", path_ + "/moved");
  auto other = JobFolder::claim(
      [&] {
        JobConfig config = config_;
        config.launcher.log_dir = path_ + "/other_logs";
        return config;
      }(),
      now_);
  ASSERT_TRUE(other) << other.error().message;
  ASSERT_TRUE(other->publish({.pid = 2, .admin = "b", .key = "k"}));
  EXPECT_FALSE(folder->publish({.pid = 1, .admin = "a", .key = "k"}));
  {
    const JobFolder ends = std::move(*folder);
  }
  EXPECT_EQ(JobFolder::find(config_.launcher.state_dir, "j")->pid, 2);
}

TEST_F(JobFolderTest, WhatOtherUsersCanWriteIsNotTrusted) {
  auto launcher = claim();
  ASSERT_TRUE(launcher);
  ASSERT_TRUE(launcher->begin_lease(1, now_));
  ASSERT_TRUE(launcher->save(ledger(1)));
  ASSERT_TRUE(launcher->publish({.pid = getpid(), .admin = "127.0.0.1:1", .key = "k"}));
  ASSERT_TRUE(launcher->publish_keys({{"decode-0", "key"}}));
  const std::string state = config_.launcher.state_dir;
  const Instant later = now_ + seconds(60);
  EXPECT_TRUE(JobFolder::find(state, "j"));
  EXPECT_EQ(JobFolder::running(state), std::vector<std::string>{"j"});
  EXPECT_TRUE(JobFolder::silent_launcher(state, "j", later));
  EXPECT_TRUE(JobFolder::worker_keys(state, "j", {"decode-0"}));
  ASSERT_EQ(chmod(folder().c_str(), 0777), 0);
  EXPECT_EQ(JobFolder::find(state, "j").error().code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(read().error().code, ErrorCode::kInvalidArgument);
  EXPECT_TRUE(JobFolder::running(state).empty());
  EXPECT_FALSE(JobFolder::silent_launcher(state, "j", later));
  EXPECT_FALSE(JobFolder::worker_keys(state, "j", {"decode-0"}));
  ASSERT_EQ(chmod(folder().c_str(), 0700), 0);
}

TEST_F(JobFolderTest, TheFolderOfAnotherUserIsNotTrusted) {
  if (geteuid() != 0) {
    GTEST_SKIP() << "only root can give a folder away";
  }
  auto launcher = claim();
  ASSERT_TRUE(launcher->publish({.pid = getpid(), .admin = "127.0.0.1:1", .key = "k"}));
  ASSERT_EQ(chown(folder().c_str(), 65534, 65534), 0);
  EXPECT_EQ(JobFolder::find(config_.launcher.state_dir, "j").error().code,
            ErrorCode::kInvalidArgument);
  EXPECT_TRUE(JobFolder::running(config_.launcher.state_dir).empty());
}

TEST_F(JobFolderTest, AFolderThatWasRemovedIsMadeAnewWithAllThatWasPublished) {
  auto launcher = claim();
  ASSERT_TRUE(launcher->begin_lease(1, now_));
  ASSERT_TRUE(launcher->publish({.pid = getpid(), .admin = "127.0.0.1:1", .key = "k"}));
  ASSERT_TRUE(launcher->publish_keys({{"decode-0", "key"}}));
  EXPECT_TRUE(launcher->is_there());
  fs::remove_all(config_.launcher.state_dir);
  EXPECT_FALSE(launcher->is_there());
  EXPECT_EQ(launcher->renew_lease(1, now_).error().code, ErrorCode::kUnavailable);
  ASSERT_TRUE(launcher->make_anew());
  EXPECT_TRUE(launcher->is_there());
  EXPECT_TRUE(launcher->renew_lease(1, now_));
  EXPECT_TRUE(launcher->save(ledger(1)));
  const auto found = JobFolder::find(config_.launcher.state_dir, "j");
  ASSERT_TRUE(found) << found.error().message;
  EXPECT_EQ(found->pid, getpid());
  EXPECT_TRUE(JobFolder::worker_keys(config_.launcher.state_dir, "j", {"decode-0"}));
  EXPECT_FALSE(claim()) << "its name is taken";
}

TEST_F(JobFolderTest, AFolderThatAnotherJobHasNowIsLeftAlone) {
  auto launcher = claim();
  fs::remove_all(config_.launcher.state_dir);
  fs::remove_all(config_.launcher.log_dir);
  auto other = claim();
  ASSERT_TRUE(other) << other.error().message;
  EXPECT_EQ(launcher->make_anew().error().code, ErrorCode::kInvalidArgument);
}

TEST_F(JobFolderTest, ALauncherThatRunsIsNotEndedThoughItsLeaseHasExpired) {
  auto folder = claim();
  ASSERT_TRUE(folder->begin_lease(1, now_ - seconds(60)));
  // This process holds the folder, and its lease is old; it runs while it looks at itself.
  EXPECT_EQ(claim().error().code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(*JobFolder::silent_launcher(config_.launcher.state_dir, "j", now_), getpid());
  ASSERT_TRUE(folder->renew_lease(1, now_));
  EXPECT_FALSE(JobFolder::silent_launcher(config_.launcher.state_dir, "j", now_));
}

}  // namespace
}  // namespace pdjob::launcher
