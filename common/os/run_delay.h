// How long threads have waited for a core, though they could have run: the second number of
// /proc/PID/task/TID/schedstat (Linux, Documentation/scheduler/sched-stats.rst). A thread that a
// CPU quota holds back waits, too. Time that a hypervisor takes from the machine does not show.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "common/time.h"

namespace pdjob {

// By thread id: the wait of each thread that lives, since it began. A wait counts when it is over.
// Value.
using RunDelays = std::map<int64_t, Duration>;

// Of one process. Empty if there is no such process, or the kernel does not tell. Reads a file for
// each thread. Thread-safe.
RunDelays run_delays(int64_t pid);
// The same with more about each thread, from a second file. Thread-safe.
struct CoreTime {
  Duration ran{};
  Duration waited{};
  bool runnable = false;  // Runs, or waits for a core.
};
std::map<int64_t, CoreTime> core_times(int64_t pid);
// The processes that descend from this one, without itself. Reads a file for each process of the
// machine. Thread-safe.
std::vector<int64_t> descendants_of(int64_t pid);

// What threads waited between two looks. A thread that is new began in between. Pure.
struct Waits {
  Duration longest{};  // Of the thread that waited longest.
  Duration sum{};
};
Waits waits_between(const RunDelays& before, const RunDelays& now);

}  // namespace pdjob
