// XGrammar's own messages, kept from every log: they quote what clients sent. Of one thread.
#pragma once

#include <cstddef>

namespace pdjob::engine {

// How often the library has warned on this thread: that it ignores or approximates something.
size_t library_warnings();

}  // namespace pdjob::engine
