// `pdjob links`: asks the workers of a running job for the state of their KV links.
#pragma once

#include <string>
#include <vector>

#include "launcher/look/links.h"
#include "launcher/look/show_page.h"

namespace pdjob::launcher {

// What each worker of the job says of its links.
Result<std::vector<LinksAnswer>> ask_links(const std::string& state_dir, const std::string& job);

// Returns the exit code (common/exit_code.h); kExitFailed if the job is not running.
int show_links(const std::string& state_dir, const std::string& job, StatusForm form,
               ShowMode mode);

}  // namespace pdjob::launcher
