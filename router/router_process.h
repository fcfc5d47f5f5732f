// Runs one router as a process: the shell around the Router core. Also runs without a launcher
// (`pdjob router --prefill URL ...`).
#pragma once

#include "router/config/router_options.h"

namespace pdjob::router {

// Serves until SIGTERM, SIGINT or the launcher's Drain (finishes its requests, exit 0), or the
// parent's death. Returns the exit code (common/exit_code.h).
int run_router(const RouterOptions& options);

}  // namespace pdjob::router
