// RestartPolicy: when to start a dead process again, and when to give up. One per process. Pure.
#pragma once

#include <cstdint>
#include <optional>

#include "common/time.h"

namespace pdjob::launcher {

struct RestartConfig {
  Duration backoff_min = std::chrono::milliseconds(250);
  Duration backoff_max = std::chrono::seconds(30);
  Duration healthy_after = std::chrono::seconds(60);
  uint32_t attempts = 4;
};

class RestartPolicy {
 public:
  explicit RestartPolicy(const RestartConfig& config) : config_(config) {}

  void started(Instant now) { started_at_ = now; }
  void became_ready() { ever_ready_ = true; }
  // Returns the time of the next start. Empty: it died too often without ever being ready. A
  // process that was once ready is retried forever, because the rest of the job still serves.
  std::optional<Instant> died(Instant now);

  uint32_t deaths_in_a_row() const { return deaths_in_a_row_; }

 private:
  RestartConfig config_;
  Instant started_at_{};
  uint32_t deaths_in_a_row_ = 0;
  bool ever_ready_ = false;
};

}  // namespace pdjob::launcher
