#include "common/os/affinity.h"

#include <algorithm>
#include <array>

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/check.h"
#include "common/config/number_list.h"

namespace pdjob {
namespace {

TEST(Affinity, AProcessMayRunSomewhere) { EXPECT_FALSE(own_cpus().empty()); }

// The CPUs of a child that took it over.
std::string allowed_with(const Affinity& affinity) {
  std::array<int, 2> ends{};
  PDJOB_CHECK(pipe(ends.data()) == 0);
  const pid_t pid = fork();
  if (pid == 0) {
    affinity.apply();
    const std::string text = number_list_text(own_cpus());
    _exit(write(ends[1], text.data(), text.size()) < 0 ? 1 : 0);
  }
  close(ends[1]);
  std::string text(256, ' ');
  text.resize(static_cast<size_t>(std::max<ssize_t>(read(ends[0], text.data(), text.size()), 0)));
  close(ends[0]);
  waitpid(pid, nullptr, 0);
  return text;
}

TEST(Affinity, AChildRunsOnItsCpusOnly) {
  const NumberList own = own_cpus();
  const std::string last = std::to_string(own.back());
  EXPECT_EQ(allowed_with(Affinity({own.back()}, {0})), last);
  EXPECT_EQ(allowed_with(Affinity({}, {})), number_list_text(own));
}

TEST(Affinity, WhatTheKernelRefusesStaysAsItIs) {
  const std::string own = number_list_text(own_cpus());
  EXPECT_EQ(allowed_with(Affinity({65535}, {65535})), own);
}

}  // namespace
}  // namespace pdjob
