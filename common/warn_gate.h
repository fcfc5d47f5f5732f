// WarnGate limits one kind of warning to one line per interval; counters have all of them. Value.
#pragma once

#include <chrono>

#include "common/time.h"

namespace pdjob {

class WarnGate {
 public:
  explicit WarnGate(Duration interval = std::chrono::seconds(1)) : interval_(interval) {}

  // Returns true if the warning is to be logged now.
  bool opens(Instant now) {
    const bool open = now - opened_ >= interval_;
    opened_ = open ? now : opened_;
    return open;
  }

 private:
  Duration interval_;
  Instant opened_{};
};

}  // namespace pdjob
