#include "common/config/http_paths.h"

#include <algorithm>

namespace pdjob {
namespace {

bool is_engine_path(std::string_view path) {
  return path.size() > 1 && path.size() <= kEnginePathBytesMax && path.starts_with('/') &&
         !path.starts_with("/pdjob/") && path.find("//") == std::string_view::npos &&
         std::ranges::all_of(path, [](char c) {
           return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                  std::string_view("/_-.").find(c) != std::string_view::npos;
         });
}

}  // namespace

void check_engine_paths(ConfigReader& in, std::string_view key,
                        const std::vector<std::string>& paths) {
  if (paths.size() > kEnginePathsMax) {
    in.fail(key, "must be at most " + std::to_string(kEnginePathsMax) + " paths, got " +
                     std::to_string(paths.size()));
  }
  for (const std::string& path : paths) {
    if (!is_engine_path(path)) {
      in.fail(key, "must be paths such as /v1/rerank, of at most " +
                       std::to_string(kEnginePathBytesMax) +
                       " letters, digits and _-./, and not below /pdjob, got " + path);
    }
  }
}

}  // namespace pdjob
