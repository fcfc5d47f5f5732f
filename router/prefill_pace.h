// PrefillPace: how long a prefill may take before it is called slow: longer, for its tokens, than
// all but a share of the prefills of late. A quantile of (duration / tokens), followed by a step up
// or down with each prefill (Robbins and Monro, A Stochastic Approximation Method, 1951), so it
// knows no clock rates, needs no tables, and the share that it calls slow stays what was asked for,
// whatever the load. Pure.
#pragma once

#include <cmath>
#include <cstdint>
#include <optional>

#include "common/time.h"

namespace pdjob::router {

class PrefillPace {
 public:
  // `quantile`: of the prefills that are not slow, 0 to 1.
  explicit PrefillPace(double quantile) : quantile_(quantile) {}

  // One has ended.
  void note(uint64_t tokens, Duration took) {
    const double pace = seconds(took) / per(tokens);
    if (prefills_ == 0) {
      pace_ = pace;
    }
    step(pace > pace_);
  }
  // One has been called slow, and its end will not be told.
  void note_slow() { step(true); }
  // How long one of so many tokens may take; none: too few are known to say.
  std::optional<Duration> limit(uint64_t tokens) const {
    return prefills_ < kPrefillsMin ? std::nullopt
                                    : std::optional(std::chrono::duration_cast<Duration>(
                                          std::chrono::duration<double>(pace_ * per(tokens))));
  }

 private:
  static constexpr uint64_t kPrefillsMin = 20;
  // A short prompt takes a time of its own, too.
  static constexpr uint64_t kTokensMin = 64;
  static constexpr double kStep = 0.1;

  static double per(uint64_t tokens) { return static_cast<double>(tokens + kTokensMin); }

  // In balance when the share of those above is 1 - quantile.
  void step(bool above) {
    ++prefills_;
    pace_ *= std::exp(kStep * (above ? quantile_ : quantile_ - 1));
  }

  double quantile_;
  double pace_ = 0;  // Seconds per token.
  uint64_t prefills_ = 0;
};

}  // namespace pdjob::router
