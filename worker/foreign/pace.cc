#include "worker/foreign/pace.h"

#include <algorithm>

namespace pdjob::worker {
namespace {

// Counters of an engine that lies may shrink.
LatencyTotal growth(const LatencyTotal& from, const LatencyTotal& to) {
  const bool grew = to.count > from.count && to.seconds >= from.seconds;
  return grew ? LatencyTotal{to.seconds - from.seconds, to.count - from.count} : LatencyTotal{};
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
  roll(now);
  if (last_) {
    current_.ttft += growth(last_->ttft, sample.ttft);
    current_.itl += growth(last_->itl, sample.itl);
  }
  current_.longest = std::max(current_.longest, gap);
  last_ = sample;
}

void Pace::roll(Instant now) {
  if (now - started_ < kWindow) {
    return;
  }
  previous_ = now - started_ < 2 * kWindow ? current_ : Window{};
  current_ = Window{};
  started_ = now;
}

Duration Pace::mean(LatencyTotal Window::* latency) const {
  LatencyTotal total = previous_.*latency;
  total += current_.*latency;
  return mean_of(total);
}

Duration Pace::patience() const {
  return std::min(kPatienceFactor * std::max(previous_.longest, current_.longest), kPatienceMax);
}

}  // namespace pdjob::worker
