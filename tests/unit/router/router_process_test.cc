// A whole router process: started, asked, and ended by a signal.
#include "router/router_process.h"

#include <cstdio>
#include <string>

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/exit_code.h"

namespace pdjob::router {
namespace {

struct RouterProcessTest : testing::Test {
  // Forks before anything else starts, as the launcher does.
  void start() {
    int ends[2];
    ASSERT_EQ(pipe(ends), 0);
    std::fflush(nullptr);  // Otherwise buffered output would be printed twice.
    child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      dup2(ends[1], STDOUT_FILENO);
      RouterOptions options;
      options.config.listen = "127.0.0.1:0";
      _exit(run_router(options));
    }
    close(ends[1]);
    char line[256] = {};
    ASSERT_GT(::read(ends[0], line, sizeof line - 1), 0);
    close(ends[0]);
    ready = line;
  }
  int exit_code() {
    int status = 0;
    EXPECT_EQ(waitpid(child, &status, 0), child);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }

  pid_t child = -1;
  std::string ready;
};

TEST_F(RouterProcessTest, SaysWhereItListensAndDrainsOnSigterm) {
  start();
  EXPECT_TRUE(ready.starts_with("ready url=http://127.0.0.1:")) << ready;
  ASSERT_EQ(kill(child, SIGTERM), 0);
  EXPECT_EQ(exit_code(), kExitOk);
}

TEST_F(RouterProcessTest, FailsWhereItCannotListen) {
  RouterOptions options;
  options.config.listen = "256.0.0.1:1";
  child = fork();
  if (child == 0) {
    _exit(run_router(options));
  }
  EXPECT_EQ(exit_code(), kExitFailed);
}

}  // namespace
}  // namespace pdjob::router
