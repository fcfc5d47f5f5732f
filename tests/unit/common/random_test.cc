#include "common/random.h"

#include <array>
#include <set>

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

namespace pdjob {
namespace {

// Regression: a forked process had its parent's random words, so both gave out the same ids.
TEST(Entropy, OfAForkedProcessDiffersFromItsParents) {
  entropy();
  std::array<int, 2> ends{};
  ASSERT_EQ(pipe(ends.data()), 0);
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  std::array<uint64_t, 16> words{};
  if (child == 0) {
    for (uint64_t& word : words) {
      word = entropy();
    }
    _exit(write(ends[1], words.data(), sizeof words) == sizeof words ? 0 : 1);
  }
  std::set<uint64_t> different;
  for (size_t i = 0; i < words.size(); ++i) {
    different.insert(entropy());
  }
  ASSERT_EQ(read(ends[0], words.data(), sizeof words), static_cast<ssize_t>(sizeof words));
  different.insert(words.begin(), words.end());
  EXPECT_EQ(different.size(), 2 * words.size());
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  close(ends[0]);
  close(ends[1]);
}

}  // namespace
}  // namespace pdjob
