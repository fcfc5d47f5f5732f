// StepPace: how long this engine's steps took lately, for their size. From this follows how long
// the current one may take before the engine counts as hung. What is older than two windows is
// forgotten. Value.
#pragma once

#include <algorithm>
#include <cstddef>

#include "common/time.h"

namespace pdjob::worker {

class StepPace {
 public:
  static constexpr Duration kWindow = std::chrono::minutes(5);
  static constexpr Duration kPatienceMin = std::chrono::milliseconds(1500);
  static constexpr int kPatienceFactor = 8;
  static constexpr size_t kStepsNeeded = 20;  // Before the history counts.

  // A step over so many tokens took so long; its sampling and events are included.
  void took(size_t tokens, Duration time, Instant now) {
    roll(now);
    current_.per_token = std::max(current_.per_token, time / static_cast<int>(tokens));
    current_.longest = std::max(current_.longest, time);
    current_.largest = std::max(current_.largest, tokens);
    ++current_.steps;
  }

  // Eight times what the slowest step suggests. A step that is larger than all before is judged by
  // the slowest token so far, which is too much rather than too little. Zero: unknown.
  Duration patience(size_t tokens) const {
    if (previous_.steps + current_.steps < kStepsNeeded) {
      return Duration::zero();
    }
    Duration expected = std::max(previous_.longest, current_.longest);
    if (tokens > std::max(previous_.largest, current_.largest)) {
      const Duration slowest = std::max(previous_.per_token, current_.per_token);
      expected = std::max(expected, slowest * static_cast<int>(tokens));
    }
    return std::max(kPatienceMin, kPatienceFactor * expected);
  }

 private:
  struct Window {
    Duration longest{};
    Duration per_token{};
    size_t largest = 0;
    size_t steps = 0;
  };
  void roll(Instant now) {
    if (now - started_ >= kWindow) {
      previous_ = now - started_ < 2 * kWindow ? current_ : Window{};
      current_ = {};
      started_ = now;
    }
  }

  Instant started_{};  // Of `current_`.
  Window current_;
  Window previous_;
};

}  // namespace pdjob::worker
