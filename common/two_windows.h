// TwoWindows: what happened lately, in a window of time that fills and the one before it. Older
// windows are forgotten. RecentMean: what was measured in the last one or two minutes. FadingLine:
// how one quantity has followed another. Values.
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

// y = a + b x, from pairs of which old ones fade. a and b are not below zero.
class FadingLine {
 public:
  // With each new pair, the weight of the old ones is multiplied by `fade`. b is at least
  // `slope_part` of y / x.
  struct Options {
    double fade = 0.97;
    double slope_part = 0.25;
  };
  FadingLine() : FadingLine(Options{}) {}
  explicit FadingLine(const Options& options) : options_(options) {}

  void add(double x, double y) {
    for (double* sum : {&weight_, &x_, &y_, &xx_, &xy_}) {
      *sum *= options_.fade;
    }
    weight_ += 1;
    x_ += x;
    y_ += y;
    xx_ += x * x;
    xy_ += x * y;
  }
  bool known() const { return weight_ > 0; }
  double a() const { return known() ? std::max(0.0, (y_ - b() * x_) / weight_) : 0; }
  // Without a spread in x, the whole of y is taken to grow with x: the careful guess.
  double b() const {
    constexpr double kSpreadMin = 0.1;  // Variance of x below which a line has no slope.
    if (!known() || x_ == 0) {
      return 0;
    }
    const double mean_x = x_ / weight_;
    const double variance = xx_ / weight_ - mean_x * mean_x;
    const double proportional = y_ / x_;
    if (variance < kSpreadMin) {
      return proportional;
    }
    const double slope = (xy_ / weight_ - mean_x * y_ / weight_) / variance;
    return std::clamp(slope, options_.slope_part * proportional, proportional);
  }

 private:
  Options options_;
  double weight_ = 0, x_ = 0, y_ = 0, xx_ = 0, xy_ = 0;
};

}  // namespace pdjob
