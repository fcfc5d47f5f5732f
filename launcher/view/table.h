// Text for people: aligned columns, and durations. Pure.
#pragma once

#include <string>
#include <vector>

#include "common/time.h"

namespace pdjob::launcher {

// The first row is the heading. Each line ends with a newline and has no trailing blanks.
std::string format_table(const std::vector<std::vector<std::string>>& rows);

// "5s", "2m10s", "3h7m".
std::string duration_text(Duration duration);
// "decode-0 is starved: 43 % of its time it waited for a core". `share`: 0..1.
std::string starved_text(const std::string& process, double share);

}  // namespace pdjob::launcher
