// `pdjob links`: asks the workers of a running job how their KV links do.
#pragma once

#include <string>

#include "launcher/status_command.h"

namespace pdjob::launcher {

enum class LinksMode { kOnce, kWatch };

// The exit code (common/exit_code.h); kExitFailed if no such job runs. Watching ends by a signal,
// by the end of the job, or when nobody reads any more.
int show_links(const std::string& state_dir, const std::string& job, StatusForm form,
               LinksMode mode);

}  // namespace pdjob::launcher
