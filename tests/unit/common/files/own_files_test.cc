#include "common/files/own_files.h"

#include <filesystem>
#include <fstream>

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

namespace pdjob {
namespace {

constexpr uid_t kSomebody = 65534;

class OwnFiles : public testing::Test {
 protected:
  OwnFiles() {
    std::filesystem::remove_all(root_);
    std::filesystem::create_directories(root_);
  }
  ~OwnFiles() override { std::filesystem::remove_all(root_); }
  OwnFiles(const OwnFiles&) = delete;
  OwnFiles& operator=(const OwnFiles&) = delete;

  static mode_t mode_of(const std::string& path) {
    struct stat found{};
    return stat(path.c_str(), &found) == 0 ? found.st_mode & 07777 : 0;
  }

  const std::string root_ = testing::TempDir() + "/own-files-" + std::to_string(getpid());
};

TEST_F(OwnFiles, MakesAFolderForItsOwnerOnly) {
  const std::string folder = root_ + "/a/b";
  ASSERT_TRUE(make_own_folder(folder));
  EXPECT_EQ(mode_of(folder), 0700U);
  ASSERT_EQ(chmod(folder.c_str(), 0750), 0);
  EXPECT_TRUE(make_own_folder(folder));
  EXPECT_EQ(mode_of(folder), 0750U) << "a folder that was there keeps its rights";
}

TEST_F(OwnFiles, RefusesAFolderThatOthersCanFill) {
  const std::string folder = root_ + "/shared";
  ASSERT_TRUE(make_own_folder(folder));
  for (const mode_t mode : {0770, 0707, 01777}) {
    ASSERT_EQ(chmod(folder.c_str(), mode), 0);
    EXPECT_FALSE(make_own_folder(folder)) << mode;
  }
  ASSERT_EQ(chmod(folder.c_str(), 0777), 0);
  EXPECT_FALSE(make_own_folder(folder + "/below")) << "others can exchange it";
  std::filesystem::create_directory_symlink(root_, root_ + "/link");
  EXPECT_FALSE(make_own_folder(root_ + "/link"));
}

TEST_F(OwnFiles, RefusesWhatAnotherUserHasPutThere) {
  if (geteuid() != 0) {
    GTEST_SKIP() << "only root can give files away";
  }
  const std::string folder = root_ + "/theirs";
  const std::string file = root_ + "/theirs.sqlite";
  std::filesystem::create_directory(folder);
  std::ofstream(file) << "";
  ASSERT_EQ(chown(folder.c_str(), kSomebody, kSomebody), 0);
  ASSERT_EQ(chown(file.c_str(), kSomebody, kSomebody), 0);
  EXPECT_FALSE(make_own_folder(folder));
  EXPECT_FALSE(make_own_folder(folder + "/ours"));
  EXPECT_FALSE(make_own_file(folder + "/ours.sqlite"));
  EXPECT_FALSE(make_own_file(file));
}

TEST_F(OwnFiles, MakesAFileForItsOwnerOnly) {
  const std::string file = root_ + "/a.sqlite";
  ASSERT_TRUE(make_own_file(file));
  EXPECT_EQ(mode_of(file), 0600U);
  std::ofstream(file) << "kept";
  EXPECT_TRUE(make_own_file(file));
  EXPECT_EQ(std::filesystem::file_size(file), 4U);
}

TEST_F(OwnFiles, FollowsNoLinkOfAFile) {
  const std::string target = root_ + "/target";
  std::ofstream(target) << "kept";
  for (const std::string suffix : {"", "-wal", "-shm", "-journal"}) {
    const std::string file = root_ + "/linked" + suffix;
    std::filesystem::create_symlink(target, file);
    EXPECT_FALSE(make_own_file(root_ + "/linked")) << suffix;
    std::filesystem::remove(file);
  }
  EXPECT_TRUE(make_own_file(root_ + "/linked"));
  // In /tmp, others cannot exchange a file of ours; in a folder that all may write to, they can.
  ASSERT_EQ(chmod(root_.c_str(), 01777), 0);
  EXPECT_TRUE(make_own_file(root_ + "/linked"));
  ASSERT_EQ(chmod(root_.c_str(), 0777), 0);
  EXPECT_FALSE(make_own_file(root_ + "/linked"));
}

}  // namespace
}  // namespace pdjob
