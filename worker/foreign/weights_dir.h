// Where a rollout job's weights may be: below rollout.weights_dir. It touches the file system.
#pragma once

#include <filesystem>
#include <string>

#include "common/result.h"

namespace pdjob::worker {

// `path` without symbolic links; a relative one begins at `weights_dir`. kInvalidArgument: it is
// not there, or not below `weights_dir`. `shown`: its name in messages.
Result<std::filesystem::path> find_below(const std::string& weights_dir,
                                         const std::filesystem::path& path,
                                         const std::string& shown);

}  // namespace pdjob::worker
