// The real monotonic clock, and the wall clock for times that users read. Shells only. Thread-safe.
#pragma once

#include <cstdint>

#include "common/time.h"

namespace pdjob {

Instant real_now();
// CPU time of the calling thread. It stands still while other threads run.
Duration thread_cpu_time();

// Seconds since 1970, for `created` fields and logs.
int64_t unix_seconds();
int64_t unix_nanoseconds();

}  // namespace pdjob
