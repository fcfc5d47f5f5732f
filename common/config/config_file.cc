#include "common/config/config_file.h"

#include <fstream>

#include "common/limits.h"

namespace pdjob {

Result<std::string> read_config_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::string text(limits::kConfigBytesMax + 1, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  if (!file.is_open() || file.bad()) {
    return Error{ErrorCode::kInvalidArgument, path + ": cannot be read\n"};
  }
  text.resize(static_cast<size_t>(file.gcount()));
  return text;
}

}  // namespace pdjob
