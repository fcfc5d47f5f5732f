// Looks: what looks at one process say of how it gets cores. Linux counts a wait for a core only
// when it is over. One that goes on shows otherwise: the thread is runnable at two looks, and did
// not run in between. Value.
#pragma once

#include <algorithm>
#include <cstdint>

#include "common/time.h"

namespace pdjob::launcher {

// A look at a process, by the kernel's books. `turns` grows whenever its first thread, which runs
// its loop, has been on a core. `at_ms` is a clock of its node. The times are totals; 0: unknown.
struct VitalSigns {
  bool asleep = false;    // Neither runs nor waits for a core or a disk.
  bool stopped = false;   // By a signal (SIGSTOP) or a debugger; asleep, too.
  bool runnable = false;  // Its first thread runs or waits for a core.
  uint64_t turns = 0;
  uint64_t at_ms = 0;
  uint64_t ran_us = 0;  // Its first thread was on a core.
  uint64_t waited_us = 0;
  // The same of all its threads, and those of the processes that it started.
  bool any_runnable = false;
  uint64_t all_ran_us = 0;
  uint64_t all_waited_us = 0;

  // True if it was on no core between an earlier look and this one.
  bool slept_since(const VitalSigns& earlier) const {
    return asleep && earlier.asleep && turns == earlier.turns;
  }
  friend bool operator==(const VitalSigns&, const VitalSigns&) = default;
};

class Looks {
 public:
  // It lives: later looks are compared with what its first thread has waited so far.
  void begin(uint64_t waited_us) {
    *this = {};
    last_.waited_us = waited_us;
  }
  // Returns how long its first thread has waited since the last look, or since begin().
  Duration take(const VitalSigns& now) {
    before_ = last_;
    last_ = now;
    const Duration counted = growth(before_.waited_us, now.waited_us);
    if (before_.runnable && now.runnable) {
      waited_ = less(passed(), growth(before_.ran_us, now.ran_us));
      not_counted_ = less(not_counted_ + waited_, counted);
    } else {
      waited_ = less(counted, not_counted_);
      not_counted_ = {};
    }
    return waited_;
  }

  // Between the last two looks, as all that follows. 0: there was none before, or no time passed.
  Duration passed() const {
    return before_.at_ms == 0 || last_.at_ms <= before_.at_ms
               ? Duration::zero()
               : std::chrono::milliseconds(last_.at_ms - before_.at_ms);
  }
  bool slept() const { return passed() > Duration::zero() && last_.slept_since(before_); }
  // Of the time, 0..1, in which its first thread waited for a core.
  double share_waited() const { return share(waited_); }
  // The same of some of its threads, or of more than one.
  double share_any_waited() const {
    const bool waits = before_.any_runnable && last_.any_runnable;
    const Duration ran = growth(before_.all_ran_us, last_.all_ran_us);
    return std::max(share(growth(before_.all_waited_us, last_.all_waited_us)),
                    share(waits ? less(passed(), ran) : Duration::zero()));
  }

 private:
  static Duration growth(uint64_t before_us, uint64_t now_us) {
    return std::chrono::microseconds(now_us > before_us ? now_us - before_us : 0);
  }
  static Duration less(Duration from, Duration other) {
    return std::max(from - other, Duration::zero());
  }
  double share(Duration part) const {
    return passed() == Duration::zero() ? 0 : std::min(1.0, seconds(part) / seconds(passed()));
  }

  VitalSigns before_;
  VitalSigns last_;
  Duration waited_{};
  Duration not_counted_{};  // By Linux, of what was returned so far.
};

}  // namespace pdjob::launcher
