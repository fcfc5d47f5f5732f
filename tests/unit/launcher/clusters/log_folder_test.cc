#include "launcher/clusters/log_folder.h"

#include <filesystem>
#include <fstream>
#include <iterator>

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/limits.h"

namespace pdjob::launcher {
namespace {

namespace fs = std::filesystem;

class LogFolderTest : public testing::Test {
 protected:
  LogFolderTest()
      : path_(testing::TempDir() + "/" +
              testing::UnitTest::GetInstance()->current_test_info()->name()) {
    fs::remove_all(path_);
  }
  ~LogFolderTest() override { fs::remove_all(path_); }

  void make_foreign_folder() const {
    fs::create_directories(path_);
    ASSERT_EQ(chmod(path_.c_str(), 01777), 0);
  }
  void write_file(const std::string& name, const std::string& text) const {
    std::ofstream(path_ + "/" + name) << text;
  }
  std::string text_of(const std::string& name) const {
    std::ifstream file(path_ + "/" + name);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  bool there(const std::string& name) const { return fs::exists(path_ + "/" + name); }
  mode_t mode() const {
    struct stat found{};
    return stat(path_.c_str(), &found) == 0 ? found.st_mode & 07777 : 0;
  }
  // Writes into a process's log, as the process would.
  static void say(LogFolder& logs, const std::string& process, const std::string& text) {
    const auto log = logs.open(process);
    ASSERT_TRUE(log.has_value()) << log.error().message;
    ASSERT_EQ(write(log->get(), text.data(), text.size()), static_cast<ssize_t>(text.size()));
  }

  const std::string path_;
};

TEST_F(LogFolderTest, AForeignFolderKeepsItsFilesAndItsMode) {
  make_foreign_folder();
  write_file("syslog.log", "not ours");
  write_file("decode-0.log", "of somebody else");
  for (int run = 0; run < 3; ++run) {
    auto logs = LogFolder::claim(path_, "a");
    ASSERT_TRUE(logs.has_value()) << logs.error().message;
    say(*logs, "decode-0", ".");
    say(*logs, "prefill-0", ".");
  }
  EXPECT_EQ(text_of("syslog.log"), "not ours");
  EXPECT_EQ(text_of("decode-0.log"), "of somebody else...");
  EXPECT_EQ(text_of("prefill-0.log"), ".");
  EXPECT_EQ(mode(), 01777U);
}

TEST_F(LogFolderTest, AFolderThatWeMakeIsForItsOwnerOnly) {
  const mode_t before = umask(0);
  EXPECT_TRUE(LogFolder::claim(path_, "a").has_value());
  umask(before);
  EXPECT_EQ(mode(), 0700U);
}

TEST_F(LogFolderTest, AFolderThatWasRemovedIsMadeAnewForTheNextLog) {
  auto logs = LogFolder::claim(path_, "a");
  say(*logs, "decode-0", "before");
  fs::remove_all(path_);
  say(*logs, "decode-0", "after");
  EXPECT_EQ(text_of("decode-0.log"), "after");
  EXPECT_EQ(mode(), 0700U);
  EXPECT_FALSE(LogFolder::claim(path_, "b")) << "it holds the ledger there";
}

TEST_F(LogFolderTest, ASecondJobIsRefusedAndDeletesNothing) {
  auto first = LogFolder::claim(path_, "first");
  ASSERT_TRUE(first.has_value());
  say(*first, "router-0", "serving");
  const auto second = LogFolder::claim(path_, "second");
  ASSERT_FALSE(second.has_value());
  EXPECT_EQ(second.error().code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(second.error().message, path_ + " holds the logs of job first (launcher pid " +
                                        std::to_string(getpid()) +
                                        "), which is running: give this job a launcher.log_dir of "
                                        "its own");
  EXPECT_EQ(text_of("router-0.log"), "serving");
}

TEST_F(LogFolderTest, TheLogsOfTheRunBeforeAreRemoved) {
  {
    auto logs = LogFolder::claim(path_, "a");
    say(*logs, "prefill-0", "first run");
    say(*logs, "prefill-1", "first run");
    say(*logs, "prefill-0", ", restarted");
    EXPECT_EQ(text_of("prefill-0.log"), "first run, restarted");
  }
  auto logs = LogFolder::claim(path_, "a");
  EXPECT_FALSE(there("prefill-0.log"));
  EXPECT_FALSE(there("prefill-1.log"));
  say(*logs, "prefill-0", "second run");
  EXPECT_EQ(text_of("prefill-0.log"), "second run");
}

TEST_F(LogFolderTest, ALedgerThatSomebodyForgedRemovesNothingElsewhere) {
  make_foreign_folder();
  fs::create_directories(path_ + "/other");
  write_file("other/victim.log", "precious");
  write_file(LogFolder::kLedger, "job a\nother/victim\n../" + fs::path(path_).filename().string() +
                                     "/other/victim\n/etc/passwd\n\n");
  EXPECT_TRUE(LogFolder::claim(path_, "a").has_value());
  EXPECT_EQ(text_of("other/victim.log"), "precious");
}

TEST_F(LogFolderTest, ALinkInPlaceOfALogIsRefused) {
  make_foreign_folder();
  const std::string victim = path_ + "/victim";
  std::ofstream(victim) << "precious";
  ASSERT_EQ(symlink(victim.c_str(), (path_ + "/decode-0.log").c_str()), 0);
  ASSERT_EQ(link(victim.c_str(), (path_ + "/decode-1.log").c_str()), 0);
  ASSERT_EQ(mkfifo((path_ + "/decode-2.log").c_str(), 0600), 0);
  auto logs = LogFolder::claim(path_, "a");
  ASSERT_TRUE(logs.has_value());
  for (const char* name : {"decode-0", "decode-1", "decode-2"}) {
    const auto log = logs->open(name);
    ASSERT_FALSE(log.has_value()) << name;
    EXPECT_EQ(log.error().code, ErrorCode::kInvalidArgument);
  }
  EXPECT_EQ(text_of("victim"), "precious");
}

TEST_F(LogFolderTest, ALinkInPlaceOfTheLedgerIsRefused) {
  make_foreign_folder();
  write_file("victim", "precious");
  ASSERT_EQ(symlink("victim", (path_ + "/" + LogFolder::kLedger).c_str()), 0);
  EXPECT_FALSE(LogFolder::claim(path_, "a").has_value());
  EXPECT_EQ(text_of("victim"), "precious");
}

TEST_F(LogFolderTest, ALogThatIsTooLargeBecomesTheOneOldLog) {
  auto logs = LogFolder::claim(path_, "a");
  const auto log = logs->open("decode-0");
  const std::string full(limits::kLogBytesMax, 'x');
  say(*logs, "decode-0", full);
  logs->bound();
  EXPECT_EQ(text_of("decode-0.log"), full) << "as large as it may be";
  say(*logs, "decode-0", "yz");
  logs->bound();
  EXPECT_EQ(text_of("decode-0.log"), "");
  EXPECT_EQ(text_of("decode-0-old.log"), full.substr(2) + "yz");
  ASSERT_EQ(write(log->get(), "next", 4), 4) << "the process writes on with its descriptor";
  EXPECT_EQ(text_of("decode-0.log"), "next");
  say(*logs, "decode-0", full);
  logs->bound();
  EXPECT_EQ(text_of("decode-0-old.log"), full) << "only the latest old text is kept";
  logs = LogFolder::claim(path_ + "/other", "a");
  logs = LogFolder::claim(path_, "b");
  EXPECT_FALSE(there("decode-0.log"));
  EXPECT_FALSE(there("decode-0-old.log"));
}

TEST_F(LogFolderTest, LogsThatAreKeptForAnotherLauncherStayBounded) {
  const std::string full(limits::kLogBytesMax + 1, 'x');
  for (int launcher = 0; launcher < 3; ++launcher) {
    auto logs = LogFolder::claim(path_, "a", LogFolder::Old::kKeep);
    ASSERT_TRUE(logs.has_value());
    say(*logs, "launcher", full);
    logs->bound();
    std::ofstream(path_ + "/launcher-old.log", std::ios::app) << "x";
    logs->bound();
  }
  EXPECT_FALSE(fs::exists(path_ + "/launcher-old-old.log")) << "an old log has no old log";
  EXPECT_LE(fs::file_size(path_ + "/launcher.log"), limits::kLogBytesMax);
}

TEST_F(LogFolderTest, AnOldLogNeverReplacesSomebodyElsesFile) {
  auto logs = LogFolder::claim(path_, "a");
  write_file("victim", "precious");
  ASSERT_EQ(link((path_ + "/victim").c_str(), (path_ + "/decode-0-old.log").c_str()), 0);
  say(*logs, "decode-0", std::string(limits::kLogBytesMax + 1, 'x'));
  logs->bound();
  EXPECT_EQ(text_of("victim"), "precious");
  EXPECT_EQ(text_of("decode-0.log"), "") << "bounded all the same";
}

TEST_F(LogFolderTest, TheTailIsTheLastLines) {
  auto logs = LogFolder::claim(path_, "a");
  std::string text;
  for (int line = 0; line < 40; ++line) {
    text += "line " + std::to_string(line) + "\n";
  }
  say(*logs, "decode-0", text);
  const std::string tail = logs->tail("decode-0");
  EXPECT_TRUE(tail.starts_with("line 25\n")) << tail;
  EXPECT_TRUE(tail.ends_with("line 39\n"));
  EXPECT_EQ(logs->tail("nobody"), "");
}

}  // namespace
}  // namespace pdjob::launcher
