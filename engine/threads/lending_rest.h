// LendingRest: whether borrowed threads pay, judged by the steps that used them. If other programs
// want the same cores, threads wait for each other at each operation of a step, and more threads
// can be slower than fewer. Borrowing then rests for a while, and is tried again by one step.
//
// A step divides its work evenly among its threads. So the engine's own threads alone would have
// needed the CPU time of one of them, times all threads, divided by its own ones. A step saves what
// it took less than the mean of that and of its CPU time, the least that it can take. The mean
// leaves a margin, because a thread that waits for others counts as computing until it sleeps.
//
// Savings are credit, up to kCredit, for steps that lose. So a short disturbance ends nothing.
// Pure.
#pragma once

#include <cstdint>

#include "common/time.h"

namespace pdjob::engine {

// How an engine uses threads that other engines lend.
struct LendingReport {
  // The last step used some, so its time says little.
  bool borrowed = false;
  // The last step could have, but they did not pay lately: other programs use the cores.
  bool rests = false;
  uint64_t steps = 0;        // That used some.
  uint64_t rests_begun = 0;  // Times that borrowing was given up for a while.
};

// One step that borrowed.
struct BorrowedStep {
  uint32_t own = 1;
  uint32_t threads = 2;  // Own and borrowed.
  Duration took{};
  Duration computed{};  // CPU time of the engine's own thread, which does its share of the work.

  // Estimated, if its own threads alone had computed it.
  Duration alone() const { return computed * threads / own; }
  Duration saved() const { return (computed + alone()) / 2 - took; }  // Negative: lost.
};

class LendingRest {
 public:
  static constexpr Duration kCredit = std::chrono::milliseconds(10);
  // The first rest. Each further one is twice as long, up to kLongest. A step that saves time makes
  // the next one half as long.
  static constexpr Duration kFirst = std::chrono::milliseconds(100);
  static constexpr Duration kLongest = std::chrono::seconds(10);

  // False: the step that begins now may borrow.
  bool rests(Instant now) const { return now < until_; }
  // Returns whether a rest begins. Requires: step.threads > step.own.
  bool judge(const BorrowedStep& step, Instant now);

  Duration length() const { return length_; }  // 0: none lately.
  uint64_t count() const { return count_; }    // Rests so far.

 private:
  Instant until_{};
  Duration credit_{};
  Duration length_{};
  uint64_t count_ = 0;
};

}  // namespace pdjob::engine
