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

}  // namespace pdjob::launcher
