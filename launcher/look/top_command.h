// `pdjob top` and `pdjob ps`.
#pragma once

#include <string>

#include "launcher/look/show_page.h"

namespace pdjob::launcher {

// Looks at a job once a second until a signal comes or the job ends. Returns the exit code
// (common/exit_code.h).
int show_top(const std::string& state_dir, const std::string& job);

// Lists the jobs that run here. A job whose launcher is away is listed, too.
int show_jobs(const std::string& state_dir, StatusForm form);

}  // namespace pdjob::launcher
