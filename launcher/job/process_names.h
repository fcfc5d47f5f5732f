// Names of processes in a sentence for people. Pure.
#pragma once

#include <string>
#include <vector>

namespace pdjob::launcher {

// "a, b, c and 58 more": at most three of them by name.
std::string names_text(const std::vector<std::string>& names);

}  // namespace pdjob::launcher
