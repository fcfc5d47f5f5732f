#include "batch/api/checked_time.h"

#include <utility>

namespace pdjob::batch {
namespace {

constexpr int64_t kDriftMax = 60;  // Seconds. What a daemon corrects slowly is no step.

}  // namespace

int64_t CheckedTime::Reading::goes_on_to(Instant now) const {
  return unix_seconds + std::chrono::duration_cast<std::chrono::seconds>(now - at).count();
}

bool CheckedTime::agree(int64_t one, int64_t other) {
  return one - other <= kDriftMax && other - one <= kDriftMax;
}

int64_t CheckedTime::see(int64_t unix_seconds, Instant now) {
  const Reading seen{unix_seconds, now};
  if (!std::exchange(known_, true) || agree(unix_seconds, trusted_.goes_on_to(now))) {
    strange_ = false;
    trusted_ = seen;
    return unix_seconds;
  }
  if (!std::exchange(strange_, true) || !agree(unix_seconds, stepped_.goes_on_to(now))) {
    stepped_ = seen;
  }
  if (now - stepped_.at < wait_) {
    return trusted_.goes_on_to(now);
  }
  strange_ = false;
  trusted_ = seen;
  return unix_seconds;
}

}  // namespace pdjob::batch
