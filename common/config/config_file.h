// Reads the text of a config file. Thread-safe.
#pragma once

#include <string>

#include "common/result.h"

namespace pdjob {

// kInvalidArgument: it cannot be read. It cuts a file of more than kConfigBytesMax one byte behind
// the limit, so that the parser still refuses it.
Result<std::string> read_config_file(const std::string& path);

}  // namespace pdjob
