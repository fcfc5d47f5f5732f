// PrefillPace: how long a prefill may take before it counts as slow. It is slow if it takes longer,
// for its tokens, than the given quantile of recent prefills. The quantile of (duration / tokens)
// moves a step up or down with each prefill (Robbins and Monro, A Stochastic Approximation Method,
// 1951). So it works without clock rates and tables. The share of slow prefills stays constant
// under any load. Pure.
#pragma once

#include <cmath>
#include <cstdint>
#include <optional>

#include "common/time.h"

namespace pdjob::router {

class PrefillPace {
 public:
  // `quantile`: the share of prefills that are not slow, 0 to 1.
  explicit PrefillPace(double quantile) : quantile_(quantile) {}

  // Records a prefill that has ended.
  void note(uint64_t tokens, Duration took) {
    const double pace = seconds(took) / per(tokens);
    if (prefills_ == 0) {
      pace_ = pace;
    }
    step(pace > pace_);
  }
  // Records a prefill that counts as slow. Its end will not be recorded.
  void note_slow() { step(true); }
  // The time limit for this many tokens; empty: too few prefills are known.
  std::optional<Duration> limit(uint64_t tokens) const {
    return prefills_ < kPrefillsMin ? std::nullopt
                                    : std::optional(std::chrono::duration_cast<Duration>(
                                          std::chrono::duration<double>(pace_ * per(tokens))));
  }

 private:
  static constexpr uint64_t kPrefillsMin = 20;
  // A short prompt has a fixed cost, too.
  static constexpr uint64_t kTokensMin = 64;
  static constexpr double kStep = 0.1;

  static double per(uint64_t tokens) { return static_cast<double>(tokens + kTokensMin); }

  // In balance when a share of 1 - quantile is above.
  void step(bool above) {
    ++prefills_;
    pace_ *= std::exp(kStep * (above ? quantile_ : quantile_ - 1));
  }

  double quantile_;
  double pace_ = 0;  // Seconds per token.
  uint64_t prefills_ = 0;
};

}  // namespace pdjob::router
