// RestartPolicy: when to start a dead process again, and when there is little hope for it. One per
// process. Pure.
#pragma once

#include <cstdint>

#include "common/time.h"
#include "launcher/plan/launcher_config.h"

namespace pdjob::launcher {

class RestartPolicy {
 public:
  explicit RestartPolicy(const RestartConfig& config) : config_(config) {}

  void started(Instant now) { started_at_ = now; }
  void became_ready() { ever_ready_ = true; }
  // Returns the time of the next start.
  Instant died(Instant now);

  // True if it died `attempts` times in a row, and was never ready.
  bool hopeless() const { return !ever_ready_ && deaths_in_a_row_ >= config_.attempts; }
  uint32_t deaths_in_a_row() const { return deaths_in_a_row_; }

 private:
  RestartConfig config_;
  Instant started_at_{};
  uint32_t deaths_in_a_row_ = 0;
  bool ever_ready_ = false;
};

}  // namespace pdjob::launcher
