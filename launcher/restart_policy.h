// RestartPolicy: when a process that died is started again, and when that is given up. One per
// process. Pure.
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
  // When to start again; none: it has never been ready and died too often. What was ready once is
  // tried for ever, since the rest of the job goes on serving.
  std::optional<Instant> died(Instant now);

  uint32_t deaths_in_a_row() const { return deaths_in_a_row_; }

 private:
  RestartConfig config_;
  Instant started_at_{};
  uint32_t deaths_in_a_row_ = 0;
  bool ever_ready_ = false;
};

}  // namespace pdjob::launcher
