// Timers: the clock and the timers of one thread. EventLoop has real ones; a simulation runs the
// same code on virtual time (tests/simulation). Loop-bound.
#pragma once

#include <cstdint>
#include <functional>

#include "common/id.h"
#include "common/time.h"

namespace pdjob::net {

using TimerId = StrongId<struct TimerTag, uint64_t>;

class Timers {
 public:
  // The time of this turn.
  virtual Instant now() const = 0;
  // The time of this moment: a turn may hash or copy for a millisecond.
  virtual Instant exact_now() const = 0;
  // `work` runs once, not before `when`. Timers are coarse: up to 1 ms late.
  virtual TimerId call_at(Instant when, std::function<void()> work) = 0;
  virtual void cancel(TimerId timer) = 0;  // Does nothing if the timer is unknown or has run.

 protected:
  ~Timers() = default;
};

}  // namespace pdjob::net
