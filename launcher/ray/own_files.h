// The files that this process was started from. A bundle for other machines is made of them
// (bundle.py).
#pragma once

#include <string>
#include <vector>

#include "common/result.h"
#include "net/loop/socket.h"

namespace pdjob::launcher {

struct OwnFile {
  std::string name;  // In a bundle: "pdjob", "lib/libc.so.6".
  net::Fd file;      // For reading. It stays the same if another version is installed meanwhile.
};

// The program, its libraries and their loader. Call it before anything loads more libraries.
// kUnavailable: one of them cannot be read.
Result<std::vector<OwnFile>> open_own_files();

}  // namespace pdjob::launcher
