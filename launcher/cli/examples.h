// The job files that pdjob ships: those of configs/. Pure.
#pragma once

#include <string>
#include <vector>

namespace pdjob::launcher {

std::vector<std::string> example_names();

// Its text. `name` must be one of example_names().
std::string example_text(const std::string& name);

}  // namespace pdjob::launcher
