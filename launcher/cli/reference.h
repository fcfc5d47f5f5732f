// The reference pages that are made of the program itself: `pdjob reference`. Pure.
#pragma once

#include <string>

namespace pdjob::launcher {

// Every metric of every process, as Markdown tables.
std::string metric_reference();

// Every route, field and header that routers and workers take, as Markdown tables.
std::string api_reference();

}  // namespace pdjob::launcher
