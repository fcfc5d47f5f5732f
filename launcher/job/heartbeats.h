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

namespace pdjob::launcher {

class Heartbeats {
 public:
  static constexpr Duration kWindow = std::chrono::minutes(1);
  static constexpr Duration kSilenceMin = std::chrono::seconds(1);
  static constexpr uint32_t kGapsNeeded = 8;  // Before the history counts.

  // The first sign of life of an incarnation. The history of earlier ones stays.
  void begin(Instant now) { last_ = now; }
  void beat(Instant now) {
    roll(now);
    current_.longest = std::max(current_.longest, now - last_);
    ++current_.gaps;
    last_ = now;
  }
  // The silence until now was ours. It is no gap.
  void forgive(Instant now) { last_ = now; }

  Instant last() const { return last_; }
  // Two and a half times the longest gap, at least kSilenceMin and at most `limit`. Without a
  // history: `limit`.
  Duration silence_allowed(Duration limit) const {
    if (previous_.gaps + current_.gaps < kGapsNeeded) {
      return limit;
    }
    const Duration longest = std::max(previous_.longest, current_.longest);
    return std::min(limit, std::max(kSilenceMin, longest * 5 / 2));
  }

 private:
  struct Window {
    Duration longest{};
    uint32_t gaps = 0;
  };
  void roll(Instant now) {
    if (now - started_ >= kWindow) {
      previous_ = now - started_ < 2 * kWindow ? current_ : Window{};
      current_ = {};
      started_ = now;
    }
  }

  Instant last_{};
  Instant started_{};  // Of `current_`.
  Window current_;
  Window previous_;
};

}  // namespace pdjob::launcher
