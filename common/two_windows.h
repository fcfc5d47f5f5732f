// TwoWindows: what happened lately, in a window of time that fills and the one before it. Older
// windows are forgotten. RecentMean: what was measured in the last one or two minutes. Values.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <utility>

#include "common/time.h"

namespace pdjob {

template <class Window>
class TwoWindows {
 public:
  explicit TwoWindows(Duration length) : length_(length) {}

  // The window that `now` falls into, to be added to.
  Window& at(Instant now) {
    if (now - started_ >= length_) {
      const bool next = now - started_ < 2 * length_;
      older_ = next ? std::exchange(newer_, {}) : Window{};
      newer_ = {};
      started_ = now;
    }
    return newer_;
  }
  const Window& newer() const { return newer_; }
  const Window& older() const { return older_; }

 private:
  Duration length_;
  Instant started_{};  // Of `newer_`.
  Window newer_{};
  Window older_{};
};

class RecentMean {
 public:
  static constexpr Duration kWindow = std::chrono::minutes(1);
  static constexpr double kSecondsMax = 86400;  // Of one measurement.

  // `count` measurements whose sum is `seconds`. Another process may have told it, so it may be
  // anything.
  void add(double seconds, uint64_t count, Instant now) {
    Sum& sum = windows_.at(now);
    const double most = kSecondsMax * static_cast<double>(count);
    sum.seconds += seconds > 0 ? std::min(seconds, most) : 0;
    sum.count += count;
  }

  // In microseconds, at least 1. 0: nothing was measured.
  uint64_t us(Instant now) const {
    TwoWindows<Sum> windows = windows_;
    windows.at(now);
    const uint64_t count = windows.older().count + windows.newer().count;
    if (count == 0) {
      return 0;
    }
    const double sum = windows.older().seconds + windows.newer().seconds;
    const double us = std::round(1e6 * sum / static_cast<double>(count));
    return std::max<uint64_t>(1, static_cast<uint64_t>(us));
  }

 private:
  struct Sum {
    double seconds = 0;
    uint64_t count = 0;
  };
  TwoWindows<Sum> windows_{kWindow};
};

}  // namespace pdjob
