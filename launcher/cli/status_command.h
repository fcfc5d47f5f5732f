// `pdjob status`, `pdjob nodes` and `pdjob explain`: find a running launcher by its job's name and
// ask it.
#pragma once

#include <string>

namespace pdjob::launcher {

enum class StatusForm { kText, kJson };

// Returns the exit code (common/exit_code.h); kExitFailed if the job is not running.
int show_status(const std::string& state_dir, const std::string& job, StatusForm form);
int show_nodes(const std::string& state_dir, const std::string& job, StatusForm form);

int show_decisions(const std::string& state_dir, const std::string& job);

}  // namespace pdjob::launcher
