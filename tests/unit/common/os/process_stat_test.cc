#include "common/os/process_stat.h"

#include <filesystem>
#include <fstream>

#include <gtest/gtest.h>
#include <unistd.h>

#include "common/os/read_text.h"

namespace pdjob {
namespace {

namespace fs = std::filesystem;

class ProcessStatTest : public testing::Test {
 protected:
  ProcessStatTest() {
    std::string name = testing::TempDir() + "process-stat-XXXXXX";
    folder_ = ::mkdtemp(name.data());
  }
  ~ProcessStatTest() override { fs::remove_all(folder_); }

  fs::path folder_;
};

TEST_F(ProcessStatTest, IsReadBehindAnyName) {
  std::ofstream(folder_ / "stat") << "7 (a) S 9 (b)) R 1 2 3 4 5 4194560 0";
  const auto stat = read_process_stat(folder_);
  ASSERT_TRUE(stat);
  EXPECT_EQ(stat->state, 'R');
  EXPECT_EQ(stat->parent, 1);
  EXPECT_EQ(stat->flags, 4194560U);
}

TEST_F(ProcessStatTest, OfThisProcessNamesItsParent) {
  const auto stat = read_process_stat("/proc/self");
  ASSERT_TRUE(stat);
  EXPECT_EQ(stat->parent, ::getppid());
}

TEST_F(ProcessStatTest, IsNothingForAProcessThatIsGone) {
  EXPECT_FALSE(read_process_stat(folder_ / "gone"));
}

// As in /proc when a process ends between the opening of its file and the reading.
TEST_F(ProcessStatTest, IsNothingIfTheReadFails) {
  fs::create_directory(folder_ / "stat");
  EXPECT_EQ(read_text(folder_ / "stat"), "");
  EXPECT_FALSE(read_process_stat(folder_));
}

TEST_F(ProcessStatTest, ATextOfManyPiecesIsReadWhole) {
  const std::string text(100'000, 'x');
  std::ofstream(folder_ / "long") << text;
  EXPECT_EQ(read_text(folder_ / "long"), text);
}

}  // namespace
}  // namespace pdjob
