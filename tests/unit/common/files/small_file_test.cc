#include "common/files/small_file.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

namespace pdjob {
namespace {

constexpr uid_t kSomebody = 65534;

class SmallFile : public testing::Test {
 protected:
  SmallFile() {
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_);
    std::ofstream(file_) << "content\n";
  }
  ~SmallFile() override {
    unsetenv("CREDENTIALS_DIRECTORY");
    std::filesystem::remove_all(folder_);
  }
  SmallFile(const SmallFile&) = delete;
  SmallFile& operator=(const SmallFile&) = delete;

  bool is_secret(mode_t mode) const {
    EXPECT_EQ(chmod(file_.c_str(), mode), 0);
    return read_small_file(file_, 100, Secrecy::kSecret).has_value();
  }
  bool give_to(uid_t user) const { return chown(file_.c_str(), user, kSomebody) == 0; }

  const std::string folder_ = testing::TempDir() + "/small-file-" + std::to_string(getpid());
  const std::string file_ = folder_ + "/file";
};

TEST_F(SmallFile, ReadsTheBeginningOfAFile) {
  EXPECT_EQ(*read_small_file(file_, 100), "content\n");
  EXPECT_EQ(*read_small_file(file_, 4), "cont");
  std::filesystem::create_symlink("file", folder_ + "/link");
  EXPECT_EQ(*read_small_file(folder_ + "/link", 100), "content\n");
  EXPECT_EQ(read_small_file(folder_ + "/none", 100).error().message, "No such file or directory");
  EXPECT_EQ(read_small_file(folder_, 100).error().message, "Is a directory");
}

TEST_F(SmallFile, NeverWaitsForAPipeOrADevice) {
  const std::string pipe = folder_ + "/pipe";
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  for (const std::string& path : {pipe, std::string("/dev/zero"), std::string("/dev/tty")}) {
    const auto read = read_small_file(path, 100);
    EXPECT_FALSE(read) << path;
  }
  EXPECT_EQ(read_small_file(pipe, 100).error().message, "it is not a regular file");
}

TEST_F(SmallFile, ASecretIsForItsOwnerOnly) {
  if (!give_to(geteuid() == 0 ? kSomebody : geteuid())) {
    GTEST_SKIP() << "cannot give a file away";
  }
  EXPECT_TRUE(is_secret(0600));
  EXPECT_TRUE(is_secret(0400));
  for (const mode_t mode : {0640, 0660, 0610, 0604, 0602, 0644}) {
    EXPECT_FALSE(is_secret(mode)) << mode;
  }
}

// Volumes of Kubernetes belong to root, and a pod reads them by its group.
TEST_F(SmallFile, AGroupMayReadASecretOfRoot) {
  if (geteuid() != 0) {
    GTEST_SKIP() << "only root can make one";
  }
  ASSERT_TRUE(give_to(0));
  EXPECT_TRUE(is_secret(0640));
  EXPECT_TRUE(is_secret(0440));
  for (const mode_t mode : {0660, 0650, 0444, 0644, 0604}) {
    EXPECT_FALSE(is_secret(mode)) << mode;
  }
}

TEST_F(SmallFile, AGroupMayReadACredentialOfSystemd) {
  if (!give_to(geteuid() == 0 ? kSomebody : geteuid())) {
    GTEST_SKIP() << "cannot give a file away";
  }
  setenv("CREDENTIALS_DIRECTORY", folder_.c_str(), 1);
  EXPECT_TRUE(is_secret(0440));
  EXPECT_FALSE(is_secret(0444));
  setenv("CREDENTIALS_DIRECTORY", (folder_ + "/..").c_str(), 1);
  EXPECT_FALSE(is_secret(0440));
}

}  // namespace
}  // namespace pdjob
