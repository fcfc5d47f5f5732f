// How many files and sockets this process may have open at once (RLIMIT_NOFILE). Many systems start
// processes with a soft limit of 1024, and let them raise it.
#pragma once

#include <cstddef>
#include <cstdint>

namespace pdjob {

// Raises the soft limit to the hard one. For processes that run long, at their start. Processes
// that this one starts begin with the old limit: other programs may break at a high one.
void raise_descriptor_limit();
// Sets the limit that was there before raise_descriptor_limit(). In a child, before exec:
// async-signal-safe.
void restore_descriptor_limit();

// The soft limit, now.
uint64_t descriptor_limit();

// How many clients a server takes, up to `connections_max`: half of what is left beside the
// process's own files. A request needs connections of its own behind the server. Pure.
size_t connections_within(uint64_t descriptors, size_t connections_max);

}  // namespace pdjob
