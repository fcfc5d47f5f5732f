// How long threads of this process have waited for a core, though they could have run: the second
// number of /proc/PID/task/TID/schedstat (Linux, Documentation/scheduler/sched-stats.rst).
#pragma once

#include "common/time.h"

namespace pdjob {

// The sum over all threads that live, since each began. Zero if the kernel does not tell. Reads a
// file for each thread. Thread-safe.
Duration run_delay();

}  // namespace pdjob
