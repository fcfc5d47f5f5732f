#include "common/real_clock.h"

namespace pdjob {

Instant real_now() { return Instant(std::chrono::steady_clock::now().time_since_epoch()); }

int64_t unix_nanoseconds() {
  return std::chrono::nanoseconds(std::chrono::system_clock::now().time_since_epoch()).count();
}

int64_t unix_seconds() { return unix_nanoseconds() / std::nano::den; }

}  // namespace pdjob
