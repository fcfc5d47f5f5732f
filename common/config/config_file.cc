#include "common/config/config_file.h"

#include "common/files/small_file.h"
#include "common/limits.h"

namespace pdjob {

Result<std::string> read_config_file(const std::string& path) {
  auto text = read_small_file(path, limits::kConfigBytesMax + 1);
  if (!text) {
    const bool is_odd = text.error().code == ErrorCode::kUnsupported;
    return Error{ErrorCode::kInvalidArgument,
                 path + ": cannot be read" + (is_odd ? ": " + text.error().message : "") + "\n"};
  }
  return text;
}

}  // namespace pdjob
