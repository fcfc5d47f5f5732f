// `pdjob links`: asks the workers of a running job for the state of their KV links.
#pragma once

#include <string>

#include "launcher/cli/status_command.h"

namespace pdjob::launcher {

enum class LinksMode { kOnce, kWatch };

// Returns the exit code (common/exit_code.h); kExitFailed if the job is not running. Watching ends
// on a signal, at the end of the job, or when stdout is closed.
int show_links(const std::string& state_dir, const std::string& job, StatusForm form,
               LinksMode mode);

}  // namespace pdjob::launcher
