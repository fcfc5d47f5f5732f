// Keeps XGrammar's messages out of all logs, because they quote client data. Counts per thread.
#pragma once

#include <cstddef>

namespace pdjob::engine {

// How many warnings the library gave on this thread. A warning means that it ignores or
// approximates something.
size_t library_warnings();

}  // namespace pdjob::engine
