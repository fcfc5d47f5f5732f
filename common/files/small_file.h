// Reads small files that people name: job files, recipes, keys, certificates.
#pragma once

#include <cstddef>
#include <string>

#include "common/result.h"

namespace pdjob {

enum class Secrecy {
  kPublic,
  // Refused if the group or others have any right to it. A group may read a file of root, as in
  // volumes of Kubernetes, and one in $CREDENTIALS_DIRECTORY, where systemd puts credentials.
  kSecret,
};

// Returns the first `bytes_max` bytes of a regular file. Never waits. The error says why, and not
// which file it is. kUnsupported: it is a pipe, a device or a socket.
Result<std::string> read_small_file(const std::string& path, size_t bytes_max,
                                    Secrecy secrecy = Secrecy::kPublic);

}  // namespace pdjob
