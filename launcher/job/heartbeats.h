// Heartbeats of one process: when it was heard of, and how regularly it was heard of before. From
// this follows after how much silence it is suspected: on a quiet machine soon, on a busy one
// later. What is older than two windows is forgotten. Value.
//
// The idea is that of accrual failure detectors (Hayashibara et al., "The phi accrual failure
// detector", 2004). The longest gap stands for their normal distribution, because gaps of a starved
// process are not normally distributed.
#pragma once

#include <algorithm>
#include <cstdint>

#include "common/time.h"
#include "common/two_windows.h"

namespace pdjob::launcher {

class Heartbeats {
 public:
  static constexpr Duration kWindow = std::chrono::minutes(1);
  static constexpr Duration kSilenceMin = std::chrono::seconds(1);
  static constexpr uint32_t kGapsNeeded = 8;  // Before the history counts.

  // The first sign of life of an incarnation. The history of earlier ones stays.
  void begin(Instant now) { forgive(now); }
  void beat(Instant now) {
    Window& window = windows_.at(now);
    window.longest = std::max(window.longest, now - last_);
    ++window.gaps;
    forgive(now);
  }
  // The silence until now was ours. It is no gap.
  void forgive(Instant now) {
    last_ = now;
    starved_ = Duration::zero();
  }
  // Since the last heartbeat it has waited for a core, for so long again.
  void starved(Duration waited, Instant now) {
    starved_ = std::clamp(starved_ + waited, Duration::zero(), std::max(now - last_, Duration{}));
  }

  Instant last() const { return last_; }
  // When it will have been silent for so long without waiting for a core.
  Instant silent_for(Duration time) const { return last_ + starved_ + time; }
  // Two and a half times the longest gap, at least kSilenceMin and at most `limit`. Without a
  // history: `limit`.
  Duration silence_allowed(Duration limit) const {
    if (windows_.older().gaps + windows_.newer().gaps < kGapsNeeded) {
      return limit;
    }
    const Duration longest = std::max(windows_.older().longest, windows_.newer().longest);
    return std::min(limit, std::max(kSilenceMin, longest * 5 / 2));
  }

 private:
  struct Window {
    Duration longest{};
    uint32_t gaps = 0;
  };

  Instant last_{};
  Duration starved_{};  // Since then.
  TwoWindows<Window> windows_{kWindow};
};

}  // namespace pdjob::launcher
