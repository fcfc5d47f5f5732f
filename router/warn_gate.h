// WarnGate: a flood of one kind of warning is one line per interval; counters have them all. Value.
#pragma once

#include <chrono>

#include "common/time.h"

namespace pdjob::router {

class WarnGate {
 public:
  explicit WarnGate(Duration interval = std::chrono::seconds(1)) : interval_(interval) {}

  // Is it to be said now?
  bool opens(Instant now) {
    const bool open = now - opened_ >= interval_;
    opened_ = open ? now : opened_;
    return open;
  }

 private:
  Duration interval_;
  Instant opened_{};
};

}  // namespace pdjob::router
