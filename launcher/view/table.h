// Aligned columns of text for people. Pure.
#pragma once

#include <string>
#include <vector>

namespace pdjob::launcher {

// The first row is the heading. Each line ends with a newline and has no trailing blanks.
std::string format_table(const std::vector<std::vector<std::string>>& rows);

}  // namespace pdjob::launcher
