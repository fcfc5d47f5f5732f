// read_text(): the bytes of a file. The standard library's stream iterators throw if a read fails,
// as it does for a folder, or in /proc when the process ends meanwhile.
#pragma once

#include <cstddef>
#include <string>

namespace pdjob {

constexpr size_t kReadTextMax = size_t{64} << 20;

// At most kReadTextMax bytes. Empty: it cannot be opened or read. Waits for the disk. Thread-safe.
std::string read_text(const std::string& path);

}  // namespace pdjob
