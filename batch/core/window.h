// Window: how many attempts may run at once, so that the pool stays full and its queues short. It
// knows only what comes back:
//
// - It grows by half while that raises the rate of answers, and probes again from time to time.
// - A refusal for overload (429, 503) shrinks it by a third, at most once a round.
// - When the number of workers changes, it changes in proportion.
//
// A round is at least a second and as many answers as the window is wide. Value. Pure.
#pragma once

#include <cstddef>
#include <cstdint>

#include "common/time.h"

namespace pdjob::batch {

struct WindowConfig {
  size_t first = 32;
  size_t max = 1024;
};

class Window {
 public:
  explicit Window(const WindowConfig& config);

  size_t size() const { return size_; }
  // An answer came; `full`: as many attempts as allowed were running.
  void answered(bool full, Instant now);
  void overloaded(Instant now);
  void count_workers(size_t workers);
  // Somebody else decides the size, at most the largest one; it grows and shrinks from there.
  void set(size_t size, Instant now);

 private:
  void end_round(Instant now);
  void resize(double size);

  const WindowConfig config_;
  size_t size_;
  size_t workers_ = 0;  // 0: unknown.
  Instant round_began_{};
  uint64_t answers_ = 0;    // In this round.
  bool was_full_ = true;    // In the whole round.
  bool shrunk_ = false;     // In this round.
  double best_rate_ = 0;    // Answers per second, at the size before the last growth.
  size_t size_before_ = 0;  // That size; 0: the window does not probe now.
  Instant probe_at_{};
};

}  // namespace pdjob::batch
