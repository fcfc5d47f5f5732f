// StepPace: how long this engine's steps took lately, for their size. From this follows how long
// the current one may take before the engine counts as hung. What is older than two windows is
// forgotten. Value.
#pragma once

#include <algorithm>
#include <cstddef>

#include "common/time.h"
#include "common/two_windows.h"

namespace pdjob::worker {

class StepPace {
 public:
  static constexpr Duration kWindow = std::chrono::minutes(5);
  static constexpr Duration kPatienceMin = std::chrono::milliseconds(1500);
  static constexpr int kPatienceFactor = 8;
  static constexpr size_t kStepsNeeded = 20;  // Before the history counts.

  // A step over so many tokens took so long; its sampling and events are included.
  void took(size_t tokens, Duration time, Instant now) {
    Window& window = windows_.at(now);
    window.per_token = std::max(window.per_token, time / static_cast<int>(tokens));
    window.longest = std::max(window.longest, time);
    window.largest = std::max(window.largest, tokens);
    ++window.steps;
  }

  // Eight times what the slowest step suggests. A step that is larger than all before is judged by
  // the slowest token so far, which is too much rather than too little. Zero: unknown.
  Duration patience(size_t tokens) const {
    const Window& older = windows_.older();
    const Window& newer = windows_.newer();
    if (older.steps + newer.steps < kStepsNeeded) {
      return Duration::zero();
    }
    Duration expected = std::max(older.longest, newer.longest);
    if (tokens > std::max(older.largest, newer.largest)) {
      const Duration slowest = std::max(older.per_token, newer.per_token);
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

  TwoWindows<Window> windows_{kWindow};
};

}  // namespace pdjob::worker
