// StarvedTime: how long the threads of this process have waited for cores while one turn of a
// thread lasted. A starved worker is slow, not sick. Value.
#pragma once

#include <functional>
#include <utility>

#include "common/os/run_delay.h"
#include "common/time.h"

namespace pdjob::worker {

class StarvedTime {
 public:
  // A turn that is shorter is not looked into.
  static constexpr Duration kWorthALook = std::chrono::milliseconds(500);
  // The first look at a turn comes earlier, unless the thread that looks had no core either.
  static constexpr Duration kLookedAtInTime = 3 * kWorthALook;

  // `lasted`: the turn, until now. Asks `delays` of this process only if that is worth a look. What
  // was waited before the first look at a turn is unknown. If that look comes in time, it counts as
  // nothing. If the look is late, all of the turn so far counts as a wait.
  Waits of(Duration lasted, const std::function<RunDelays()>& delays) {
    const bool new_turn = lasted < lasted_ || lasted_ < kWorthALook;
    lasted_ = lasted;
    if (lasted < kWorthALook) {
      return {};
    }
    RunDelays now = delays();
    if (new_turn) {
      base_ = std::move(now);
      unseen_ = lasted > kLookedAtInTime ? lasted : Duration::zero();
      return {.longest = unseen_, .sum = unseen_};
    }
    const Waits waits = waits_between(base_, now);
    return {.longest = unseen_ + waits.longest, .sum = unseen_ + waits.sum};
  }

 private:
  Duration lasted_{};
  Duration unseen_{};  // Of the turn, before a first look that was late.
  RunDelays base_;
};

}  // namespace pdjob::worker
