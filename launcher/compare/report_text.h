// The report of a simulation, for a terminal and for programs. Pure.
#pragma once

#include <string>

#include "launcher/compare/comparison.h"

namespace pdjob::launcher {

std::string report_text(const Comparison& comparison);
// One object, on one line.
std::string report_json(const Comparison& comparison);

// "1.25 s", "48 ms", "0"
std::string time_text(double seconds);
// "12,345"
std::string count_text(uint64_t count);
// The rows of the table that texts and pages show: a name, then a value for each of the fleets.
std::vector<std::vector<std::string>> report_rows(const std::vector<const FleetFigures*>& fleets);
// The fleets that are shown side by side: the job, and the best of both roles.
std::vector<const FleetFigures*> fleets_shown(const Comparison& comparison);

}  // namespace pdjob::launcher
