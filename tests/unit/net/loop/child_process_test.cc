#include "net/loop/child_process.h"

#include <csignal>
#include <cstdlib>
#include <fstream>
#include <sstream>

#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include "common/os/descriptors.h"
#include "tests/unit/net/loop_test_support.h"

namespace pdjob::net {
namespace {

class ChildProcessTest : public testing::Test {
 protected:
  ChildOptions shell(const std::string& script) {
    return {.program = "/bin/sh", .arguments = {"sh", "-c", script}, .output = log_.get()};
  }
  Result<std::unique_ptr<ChildProcess>> start(const ChildOptions& options) {
    return ChildProcess::start(loop_, options, [this](const ChildExit& exit) {
      how_ = exit.how;
      crashed_ = exit.crashed();
    });
  }
  bool wait_for_exit() {
    return run_until(loop_, [this] { return !how_.empty(); });
  }
  std::string log() const {
    std::ostringstream text;
    text << std::ifstream(path_).rdbuf();
    return text.str();
  }

  EventLoop loop_;
  std::string how_;
  bool crashed_ = false;
  const std::string path_ = testing::TempDir() + "/child-process.log";
  const Fd log_ = Fd(open(path_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600));
};

TEST_F(ChildProcessTest, TellsHowItEnded) {
  const auto child = start(shell("echo said; exit 3"));
  ASSERT_TRUE(wait_for_exit());
  EXPECT_EQ(how_, "exit code 3");
  EXPECT_EQ(log(), "said\n");
}

TEST_F(ChildProcessTest, StartsInItsFolderWithStreamsOfItsOwn) {
  const std::string other = path_ + ".errors";
  const Fd errors(open(other.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600));
  int input[2];
  ASSERT_EQ(pipe2(input, O_CLOEXEC), 0);
  const Fd read_end(input[0]);
  Fd write_end(input[1]);
  ChildOptions options = shell("cat; pwd; echo wrong >&2");
  options.input = read_end.get();
  options.errors = errors.get();
  options.folder = "/";
  const auto child = start(options);
  ASSERT_EQ(write(write_end.get(), "line\n", 5), 5);
  write_end.reset();
  ASSERT_TRUE(wait_for_exit());
  EXPECT_EQ(log(), "line\n/\n");
  std::ostringstream text;
  text << std::ifstream(other).rdbuf();
  EXPECT_EQ(text.str(), "wrong\n");
}

TEST_F(ChildProcessTest, AFolderThatIsNotThereEndsIt) {
  ChildOptions options = shell("echo never");
  options.folder = "/nowhere";
  const auto child = start(options);
  ASSERT_TRUE(wait_for_exit());
  EXPECT_EQ(how_, "exit code 127");
  EXPECT_NE(log().find("cannot enter"), std::string::npos);
}

TEST_F(ChildProcessTest, DoesNotGetTheKeyOfOurCaller) {
  setenv("PDJOB_API_KEY", "of-the-caller", 1);
  setenv("PDJOB_API_KEYS", "other", 1);
  const auto child = start(shell("env"));
  ASSERT_TRUE(wait_for_exit());
  EXPECT_EQ(log().find("of-the-caller"), std::string::npos);
  EXPECT_NE(log().find("PDJOB_API_KEYS=other"), std::string::npos);
  unsetenv("PDJOB_API_KEY");
  unsetenv("PDJOB_API_KEYS");
}

// Programs that close every possible descriptor, or use select(), break at a high limit.
TEST_F(ChildProcessTest, BeginsWithTheLimitOfDescriptorsThatWeBeganWith) {
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  const rlimit low{.rlim_cur = 100, .rlim_max = before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &low), 0);
  raise_descriptor_limit();
  EXPECT_EQ(descriptor_limit(), before.rlim_max);
  const auto child = start(shell("ulimit -Sn; ulimit -Hn"));
  ASSERT_TRUE(wait_for_exit());
  EXPECT_TRUE(log().starts_with("100\n")) << log();
  EXPECT_FALSE(log().ends_with("\n100\n")) << log();
  setrlimit(RLIMIT_NOFILE, &before);
}

TEST_F(ChildProcessTest, ASignalReachesTheWholeGroup) {
  const auto child = start(shell("sleep 1000 & wait"));
  ASSERT_TRUE(child.has_value());
  (*child)->signal(SIGTERM);
  ASSERT_TRUE(wait_for_exit());
  EXPECT_EQ(how_, "signal 15 (Terminated)");
}

// SIGKILL may come from anybody, so it says nothing about the process's own acts.
TEST_F(ChildProcessTest, ACrashIsToldFromAnEndFromOutside) {
  const auto ends = [this](const std::string& script) {
    how_.clear();
    const auto child = start(shell(script));
    EXPECT_TRUE(wait_for_exit());
    return crashed_;
  };
  for (const char* name : {"SEGV", "ABRT", "BUS", "ILL", "FPE", "XCPU"}) {
    EXPECT_TRUE(ends(std::string("kill -") + name + " $$")) << name << ": " << how_;
  }
  for (const char* name : {"KILL", "TERM", "INT", "HUP"}) {
    EXPECT_FALSE(ends(std::string("kill -") + name + " $$")) << name << ": " << how_;
  }
  EXPECT_FALSE(ends("exit 0"));
  EXPECT_FALSE(ends("exit 1"));
}

TEST_F(ChildProcessTest, VariablesAreSetBesideOurOwn) {
  setenv("PDJOB_CHILD_TEST", "ours", 1);
  ChildOptions options = shell("echo $PDJOB_CHILD_TEST $PDJOB_CHILD_TEST_2 ${PATH:+path}");
  options.environment = {{"PDJOB_CHILD_TEST", "its"}, {"PDJOB_CHILD_TEST_2", "own"}};
  const auto child = start(options);
  ASSERT_TRUE(wait_for_exit());
  EXPECT_EQ(log(), "its own path\n");
}

TEST_F(ChildProcessTest, MayBeDestroyedWhileItTellsThatItEnded) {
  std::unique_ptr<ChildProcess> child;
  auto started = ChildProcess::start(loop_, shell("exit 0"), [&](const ChildExit& exit) {
    child.reset();
    how_ = exit.how;
  });
  ASSERT_TRUE(started.has_value());
  child = std::move(*started);
  ASSERT_TRUE(wait_for_exit());
}

TEST(FindProgram, LooksInThePathOrTakesAPathAsItIs) {
  EXPECT_EQ(find_program("/bin/sh").value(), "/bin/sh");
  EXPECT_TRUE(find_program("sh").value().ends_with("/sh"));
  EXPECT_EQ(find_program("no-such-program").error().message,
            "there is no no-such-program in $PATH");
  EXPECT_EQ(find_program("/no/such").error().code, ErrorCode::kNotFound);
}

}  // namespace
}  // namespace pdjob::net
