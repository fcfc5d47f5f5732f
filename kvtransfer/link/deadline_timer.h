// DeadlineTimer: the timer of a core whose deadline moves with every step. It may run early, never
// late. The core then checks the clock, and the timer is armed with its new deadline. Loop-bound.
#pragma once

#include <utility>

#include "common/time.h"
#include "net/loop/timers.h"

namespace pdjob::kvtransfer {

class DeadlineTimer {
 public:
  explicit DeadlineTimer(net::Timers& timers) : timers_(timers) {}
  DeadlineTimer(const DeadlineTimer&) = delete;
  DeadlineTimer& operator=(const DeadlineTimer&) = delete;
  ~DeadlineTimer() { timers_.cancel(timer_); }

  // `on_due` runs at `due` or before, and may destroy this timer.
  template <class Work>
  void arm(Instant due, Work on_due) {
    if (due >= due_) {
      return;  // A later deadline is checked when the timer runs.
    }
    timers_.cancel(timer_);
    due_ = due;
    timer_ = timers_.call_at(due, [this, on_due = std::move(on_due)] {
      due_ = kNever;
      on_due();
    });
  }

 private:
  net::Timers& timers_;
  net::TimerId timer_;
  Instant due_ = kNever;
};

}  // namespace pdjob::kvtransfer
