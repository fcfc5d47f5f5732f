// Lists of HTTP paths in a file: what engines serve besides the routes that pdjob knows. Pure.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "common/config/config_reader.h"

namespace pdjob {

inline constexpr size_t kEnginePathsMax = 32;  // Of one engine.
inline constexpr size_t kEnginePathBytesMax = 64;

// Reports an error at `key` for each path that is none, or that is pdjob's own, and for more than
// kEnginePathsMax of them.
void check_engine_paths(ConfigReader& in, std::string_view key,
                        const std::vector<std::string>& paths);

}  // namespace pdjob
