// `pdjob convert`: prints the native form of a job file of vLLM's own `pdjob`.
#pragma once

#include <string>

#include "launcher/plan/model_config.h"

namespace pdjob::launcher {

// Returns the exit code (common/exit_code.h). It prints the translation even if that is refused,
// because the errors then name lines of it.
int convert_job(const std::string& path, const Places& places);

}  // namespace pdjob::launcher
