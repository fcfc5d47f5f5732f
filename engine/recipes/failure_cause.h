// Names the likely cause of an engine's end, by the last lines of its log. Pure.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace pdjob::engine {

// For people, such as "a port is in use: [Errno 98] Address already in use". Empty: unknown. The
// last line that fits counts.
std::string failure_cause(const std::vector<std::string>& last_lines);

}  // namespace pdjob::engine
