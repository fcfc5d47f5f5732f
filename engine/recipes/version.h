// Versions of engines of other makes, such as 0.32.0 or 0.5.15.post1. Pure.
#pragma once

#include <string_view>

namespace pdjob::engine {

// If false, versions cannot be compared with it: it has no number, or is a build between releases,
// whose number may say nothing (0.1.dev1+g2b51d23).
bool is_release(std::string_view version);

// Compares the numbers, and ignores what follows them. Missing ones count as 0. Requires: both are
// releases.
bool is_older(std::string_view version, std::string_view than);

}  // namespace pdjob::engine
