// The report of a simulation as one HTML page, which needs nothing else: no script, no file beside
// it. Pure.
#pragma once

#include <string>

#include "launcher/compare/comparison.h"

namespace pdjob::launcher {

std::string report_page(const Comparison& comparison);

}  // namespace pdjob::launcher
