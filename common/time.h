// Time as the cores see it: an Instant is an argument, never read inside. Value.
//
// Instants are monotonic and valid only in their process. Processes send each other a Duration
// ("deadline in").
#pragma once

#include <chrono>
#include <cstdint>

namespace pdjob {

using Duration = std::chrono::nanoseconds;

// A monotonic clock. Only the shells read the real one (real_clock.h); simulations make their own
// instants.
struct JobClock {
  using duration = Duration;
  using rep = duration::rep;
  using period = duration::period;
  using time_point = std::chrono::time_point<JobClock>;
  static constexpr bool is_steady = true;
};
using Instant = JobClock::time_point;

inline constexpr Instant kNever = Instant::max();

inline double seconds(Duration duration) { return std::chrono::duration<double>(duration).count(); }

}  // namespace pdjob
