#include "common/real_clock.h"

namespace pdjob {

Instant real_now() { return Instant(std::chrono::steady_clock::now().time_since_epoch()); }

int64_t unix_seconds() {
  return std::chrono::duration_cast<std::chrono::seconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

}  // namespace pdjob
