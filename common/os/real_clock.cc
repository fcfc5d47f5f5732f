#include "common/os/real_clock.h"

#include <ctime>

namespace pdjob {

Instant real_now() { return Instant(std::chrono::steady_clock::now().time_since_epoch()); }

Duration thread_cpu_time() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return std::chrono::seconds(time.tv_sec) + std::chrono::nanoseconds(time.tv_nsec);
}

int64_t unix_nanoseconds() {
  return std::chrono::nanoseconds(std::chrono::system_clock::now().time_since_epoch()).count();
}

int64_t unix_seconds() { return unix_nanoseconds() / std::nano::den; }

}  // namespace pdjob
