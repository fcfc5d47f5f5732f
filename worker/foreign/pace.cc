#include "worker/foreign/pace.h"

#include <algorithm>

namespace pdjob::worker {
namespace {

// Counters of an engine that lies may shrink.
LatencyTotal growth(const LatencyTotal& from, const LatencyTotal& to) {
  const bool grew = to.count > from.count && to.seconds >= from.seconds;
  return grew ? LatencyTotal{to.seconds - from.seconds, to.count - from.count} : LatencyTotal{};
}

void add(const LatencyTotal& more, RecentMean& mean, Instant now) {
  mean.add(more.seconds, more.count, now);
}

Duration mean_of(const LatencyTotal& total) {
  if (total.count == 0) {
    return Duration::zero();
  }
  const double limit = std::chrono::duration<double>(Pace::kPatienceMax).count();
  const double seconds = std::min(total.seconds / static_cast<double>(total.count), limit);
  return std::chrono::duration_cast<Duration>(std::chrono::duration<double>(seconds));
}

}  // namespace

void Pace::take(const EngineSample& sample, Duration gap, Instant now) {
  Window& window = windows_.at(now);
  if (last_) {
    window.ttft += growth(last_->ttft, sample.ttft);
    window.itl += growth(last_->itl, sample.itl);
    add(growth(last_->queue_time, sample.queue_time), queue_, now);
    add(growth(last_->prefill_time, sample.prefill_time), prefill_, now);
    add(growth(last_->kv_time, sample.kv_time), kv_, now);
  }
  window.longest = std::max(window.longest, gap);
  last_ = sample;
}

Duration Pace::mean(LatencyTotal Window::* latency) const {
  LatencyTotal total = windows_.older().*latency;
  total += windows_.newer().*latency;
  return mean_of(total);
}

Duration Pace::patience() const {
  return std::min(kPatienceFactor * std::max(windows_.older().longest, windows_.newer().longest),
                  kPatienceMax);
}

}  // namespace pdjob::worker
