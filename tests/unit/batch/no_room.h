// NoRoom: while it lives, no file of this process grows: as on a full disk.
#pragma once

#include <csignal>

#include <gtest/gtest.h>
#include <sys/resource.h>

namespace pdjob::batch {

class NoRoom {
 public:
  NoRoom() {
    (void)signal(SIGXFSZ, SIG_IGN);
    EXPECT_EQ(getrlimit(RLIMIT_FSIZE, &before_), 0);
    const rlimit none{.rlim_cur = 1, .rlim_max = before_.rlim_max};
    EXPECT_EQ(setrlimit(RLIMIT_FSIZE, &none), 0);
  }
  ~NoRoom() { (void)setrlimit(RLIMIT_FSIZE, &before_); }
  NoRoom(const NoRoom&) = delete;
  NoRoom& operator=(const NoRoom&) = delete;

 private:
  rlimit before_{};
};

}  // namespace pdjob::batch
