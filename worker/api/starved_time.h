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

  // `lasted`: the turn, until now. Asks `delays` of this process only if that is worth a look. What
  // was waited before the first look at a turn is unknown, and does not count.
  Waits of(Duration lasted, const std::function<RunDelays()>& delays) {
    const bool new_turn = lasted < lasted_ || lasted_ < kWorthALook;
    lasted_ = lasted;
    if (lasted < kWorthALook) {
      return {};
    }
    RunDelays now = delays();
    if (new_turn) {
      base_ = std::move(now);
      return {};
    }
    return waits_between(base_, now);
  }

 private:
  Duration lasted_{};
  RunDelays base_;
};

}  // namespace pdjob::worker
