// How a process of this machine is, by the kernel's books: /proc/PID/status (proc(5)), and
// common/os/run_delay.h.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "common/time.h"
#include "launcher/job/looks.h"

namespace pdjob::launcher {

// The text of /proc/PID/status; nullopt: it is not one. Pure.
std::optional<VitalSigns> parse_vital_signs(std::string_view status);

// nullopt: there is no such process. Only its own threads count. Reads files in memory; does not
// block.
std::optional<VitalSigns> vital_signs_of(int64_t pid, Instant now);
// The same, but the threads of its descendants count, too. Reads a file for each process of the
// machine.
std::optional<VitalSigns> vital_signs_with_descendants(int64_t pid, Instant now);

}  // namespace pdjob::launcher
