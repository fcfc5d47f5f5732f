// WorkerPace: one worker's measured time per token of work. It makes the loads of fast and slow
// workers comparable. An exponentially weighted mean. Value.
#pragma once

#include <algorithm>
#include <cstdint>

#include "common/time.h"

namespace pdjob::router {

class WorkerPace {
 public:
  // Records that so many tokens of work took this long.
  void note(uint64_t tokens, Duration took) {
    const double pace = seconds(took) / static_cast<double>(std::max<uint64_t>(tokens, 1));
    pace_ = samples_ == 0 ? pace : pace_ + kWeight * (pace - pace_);
    ++samples_;
  }
  bool known() const { return samples_ >= kSamplesMin; }
  // Seconds per token.
  double value() const { return pace_; }
  // How many times slower the worker is than the fastest one. Returns 1 if too little is known or
  // the two are about the same, so equal workers stay equal despite noise.
  double slowness(double fastest) const {
    const double times = known() && fastest > 0 ? pace_ / fastest : 1;
    return times < kNoise ? 1 : std::min(times, kSlownessMax);
  }

 private:
  static constexpr uint32_t kSamplesMin = 8;
  static constexpr double kWeight = 0.1;
  static constexpr double kNoise = 1.5;
  // So it is tried at times, and can be seen to recover.
  static constexpr double kSlownessMax = 64;

  double pace_ = 0;
  uint32_t samples_ = 0;
};

}  // namespace pdjob::router
