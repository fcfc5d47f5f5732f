// ThreadBoard: a place in memory that the engines of one job on one machine share. Each engine
// writes there how many threads it computes with, and reads what the others wrote.
//
// No lock guards the numbers: two engines that begin a step at the same moment may both borrow the
// same threads, for that step. The kernel holds a file lock on each taken place. It drops the lock
// when the process dies, even by kill -9, so a dead engine's numbers never count.
//
// Lives on the engine thread. Loop-bound.
#pragma once

#include <cstdint>
#include <utility>

#include "common/result.h"
#include "common/time.h"

namespace pdjob::engine {

enum class Borrow { kNo, kYes };

class ThreadBoard {
 public:
  // Makes the memory. Returns its descriptor, which the caller owns, and which a child can inherit.
  // An engine borrows only up to `cores` threads, or what it may use itself if that is less
  // (common/os/machine_share.h).
  static Result<int> create(uint32_t cores);

  // Takes a place for an engine that has `own` threads. Closes `fd`. Fails if this machine has no
  // such locks, or all places are taken.
  static Result<ThreadBoard> join(int fd, uint32_t own);

  ThreadBoard(ThreadBoard&& other) noexcept { swap(other); }
  ThreadBoard& operator=(ThreadBoard&& other) noexcept {
    swap(other);
    return *this;
  }
  ~ThreadBoard();  // Leaves the place to others.

  // Returns the threads that the step may use: its own, and with kYes those that others lend. They
  // are marked as used until end_step().
  uint32_t begin_step(Instant now, Borrow borrow = Borrow::kYes);
  void end_step(Instant now);

 private:
  struct Board;

  ThreadBoard() = default;
  void swap(ThreadBoard& other) noexcept {
    std::swap(fd_, other.fd_);
    std::swap(board_, other.board_);
    std::swap(place_, other.place_);
    std::swap(own_, other.own_);
    std::swap(cores_, other.cores_);
  }

  int fd_ = -1;  // An open file of its own, because the kernel's locks belong to open files.
  Board* board_ = nullptr;
  uint32_t place_ = 0;
  uint32_t own_ = 0;
  uint32_t cores_ = 0;
};

}  // namespace pdjob::engine
