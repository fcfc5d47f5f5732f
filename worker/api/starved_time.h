// StarvedTime: how long this process has waited for cores while one turn of its engine lasted. A
// starved engine is slow, not sick. Value.
#pragma once

#include "common/time.h"

namespace pdjob::worker {

class StarvedTime {
 public:
  // `turn`: when the turn began. `run_delay`: of this process, now. What it waited before the first
  // call for a turn is unknown, and does not count.
  Duration since(Instant turn, Duration run_delay) {
    if (turn != turn_) {
      turn_ = turn;
      base_ = run_delay;
    }
    return run_delay - base_;
  }

 private:
  Instant turn_{};
  Duration base_{};
};

}  // namespace pdjob::worker
