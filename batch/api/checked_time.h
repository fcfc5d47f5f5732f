// CheckedTime: the wall clock's seconds, without its steps. A clock that leaps by years would
// delete every file at once. A step is believed after it has stood for a while: an operator who set
// the clock meant it. Value. Pure.
#pragma once

#include <cstdint>

#include "common/time.h"

namespace pdjob::batch {

class CheckedTime {
 public:
  // `wait`: a step is believed after so long.
  explicit CheckedTime(Duration wait) : wait_(wait) {}

  // `unix_seconds`: what the wall clock says now. Returns the time to act on.
  int64_t see(int64_t unix_seconds, Instant now);

 private:
  struct Reading {
    int64_t unix_seconds = 0;
    Instant at{};
    // What a clock that runs evenly since this reading says.
    int64_t goes_on_to(Instant now) const;
  };
  static bool agree(int64_t one, int64_t other);

  const Duration wait_;
  bool known_ = false;
  Reading trusted_;
  bool strange_ = false;  // The clock disagrees with trusted_.
  Reading stepped_;       // Its first reading after the step.
};

}  // namespace pdjob::batch
