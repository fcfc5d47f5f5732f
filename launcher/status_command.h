// `pdjob status`: finds a running launcher by its job's name and asks it.
#pragma once

#include <string>

namespace pdjob::launcher {

enum class StatusForm { kText, kJson };

// The exit code (common/exit_code.h); kExitFailed if no such job runs.
int show_status(const std::string& state_dir, const std::string& job, StatusForm form);

}  // namespace pdjob::launcher
