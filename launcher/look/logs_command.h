// `pdjob logs`: prints the log of one process of a running job, whichever node it runs on.
#pragma once

#include <string>

namespace pdjob::launcher {

enum class LogsMode {
  kWhole,   // What is there.
  kFollow,  // The end of it, and what comes, until the job ends.
};

// Returns the exit code (common/exit_code.h).
int show_log(const std::string& state_dir, const std::string& job, const std::string& process,
             LogsMode mode);

}  // namespace pdjob::launcher
