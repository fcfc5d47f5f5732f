#include "launcher/agents/agent_keys.h"

#include <cstdlib>
#include <fstream>
#include <string>

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/crypto/job_keys.h"

namespace pdjob::launcher {
namespace {

TEST(AgentKeys, AreTheSameForTheSameTextAndDifferOtherwise) {
  const AgentKeys keys = AgentKeys::of("0123456789abcdef");
  EXPECT_EQ(keys.launcher.public_key, AgentKeys::of("0123456789abcdef").launcher.public_key);
  EXPECT_NE(keys.launcher.public_key, AgentKeys::of("0123456789abcdeg").launcher.public_key);
  EXPECT_NE(keys.launcher.secret_key, keys.agent.secret_key);
  EXPECT_EQ(keys.agent.public_key.size(), 40U);
}

TEST(AgentKeys, ANewFileIsForItsOwnerAndNeverReplacesOne) {
  const std::string path = testing::TempDir() + "/agent_keys_test.key";
  unlink(path.c_str());
  ASSERT_TRUE(make_key_file(path).has_value());
  struct stat found{};
  ASSERT_EQ(stat(path.c_str(), &found), 0);
  EXPECT_EQ(found.st_mode & 0777U, 0600U);
  const auto key = read_key_file(path);
  ASSERT_TRUE(key.has_value());
  EXPECT_FALSE(make_key_file(path).has_value());
  EXPECT_EQ(*read_key_file(path), *key);
  unlink(path.c_str());
}

TEST(AgentKeys, ALineOfADescriptorLeavesTheRest) {
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  const std::string text = "0123456789abcdef0123456789abcdef\nmore";
  ASSERT_EQ(write(ends[1], text.data(), text.size()), static_cast<ssize_t>(text.size()));
  const auto key = read_key_line(ends[0]);
  ASSERT_TRUE(key.has_value());
  EXPECT_EQ(*key, text.substr(0, 32));
  char next = 0;
  EXPECT_EQ(read(ends[0], &next, 1), 1);
  EXPECT_EQ(next, 'm');
  close(ends[1]);
  EXPECT_FALSE(read_key_line(ends[0]).has_value()) << "there is no line";
  close(ends[0]);
}

}  // namespace
}  // namespace pdjob::launcher
