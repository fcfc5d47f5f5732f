// The reference page of metrics, which is made of the program itself: `pdjob reference`. Pure.
#pragma once

#include <string>

namespace pdjob::launcher {

// Every metric of every process, as Markdown tables.
std::string metric_reference();

}  // namespace pdjob::launcher
