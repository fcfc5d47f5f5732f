// Pace: how fast an engine of another make has worked lately, by its own metrics. From this follows
// how long it may go without progress before it counts as hung: a slow engine is not a sick one.
// What is older than two windows is forgotten. Value.
#pragma once

#include <optional>

#include "common/time.h"
#include "common/two_windows.h"
#include "net/control/message.h"
#include "worker/foreign/engine_sample.h"

namespace pdjob::worker {

class Pace {
 public:
  static constexpr Duration kWindow = std::chrono::minutes(5);
  static constexpr int kPatienceFactor = 3;
  static constexpr Duration kPatienceMax = std::chrono::minutes(30);

  // Takes the next sample; the first one is only compared with. `gap`: while requests ran, the
  // engine made no progress for so long, and has just gone on. Zero: there was no such gap.
  void take(const EngineSample& sample, Duration gap, Instant now);

  // Means over the last one or two windows. Zero: unknown.
  Duration ttft() const { return mean(&Window::ttft); }
  Duration itl() const { return mean(&Window::itl); }

  net::PhaseMeans phases(Instant now) const {
    return {.queue_us = queue_.us(now), .prefill_us = prefill_.us(now), .kv_us = kv_.us(now)};
  }

  // Three times the longest gap. Zero: unknown. TTFT does not count, because it includes the time
  // that requests wait in the engine's queue.
  Duration patience() const;

 private:
  struct Window {
    LatencyTotal ttft;
    LatencyTotal itl;
    Duration longest{};
  };
  Duration mean(LatencyTotal Window::* latency) const;

  TwoWindows<Window> windows_{kWindow};
  RecentMean queue_;
  RecentMean prefill_;
  RecentMean kv_;
  std::optional<EngineSample> last_;
};

}  // namespace pdjob::worker
