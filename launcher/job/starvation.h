// Starvation: whether a process lacks a core. It is starved from when one of its threads waited for
// a core in a quarter of two seconds, until that is less than a tenth of five seconds. A starved
// process is slow, not sick. Value.
#pragma once

#include <algorithm>

#include "common/time.h"

namespace pdjob::launcher {

class Starvation {
 public:
  static constexpr double kBegins = 0.25;
  static constexpr Duration kBeginsAfter = std::chrono::seconds(2);
  static constexpr double kEnds = 0.1;
  static constexpr Duration kEndsAfter = std::chrono::seconds(5);

  // A new incarnation, or one that is heard of for the first time.
  void begin(Instant now) {
    *this = {};
    noted_ = now;
  }
  // Since the last note it waited for this share of the time, 0..1. Returns whether it is starved
  // from now on, or is so no more.
  bool note(double share, Instant now) {
    const double passed = seconds(std::max(now - noted_, Duration::zero()));
    noted_ = std::max(noted_, now);
    waited_ += std::clamp(share, 0.0, 1.0) * passed;
    passed_ += passed;
    if (passed_ < seconds(starved_ ? kEndsAfter : kBeginsAfter)) {
      return false;
    }
    share_ = waited_ / passed_;
    waited_ = passed_ = 0;
    const bool was_starved = starved_;
    starved_ = share_ >= (was_starved ? kEnds : kBegins);
    since_ = starved_ && !was_starved ? now : since_;
    return starved_ != was_starved;
  }

  bool starved() const { return starved_; }
  // Of the last whole seconds, 0..1.
  double share() const { return share_; }
  Instant since() const { return since_; }  // It is starved, or was so the last time.

 private:
  Instant noted_{};
  double waited_ = 0;  // Seconds, as is passed_.
  double passed_ = 0;
  double share_ = 0;
  Instant since_{};
  bool starved_ = false;
};

}  // namespace pdjob::launcher
