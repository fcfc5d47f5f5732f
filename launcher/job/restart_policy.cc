#include "launcher/job/restart_policy.h"

#include <algorithm>

namespace pdjob::launcher {

Instant RestartPolicy::died(Instant now) {
  if (ever_ready_ && now - started_at_ >= config_.healthy_after) {
    deaths_in_a_row_ = 0;
  }
  ++deaths_in_a_row_;
  Duration wait = config_.backoff_min;
  for (uint32_t i = 1; i < deaths_in_a_row_ && wait < config_.backoff_max; ++i) {
    wait *= 2;
  }
  return now + std::min(wait, config_.backoff_max);
}

}  // namespace pdjob::launcher
