// Runs one router as a process: the shell around the Router core. Also runs without a launcher
// (`pdjob router --prefill URL ...`).
#pragma once

#include <string>
#include <vector>

#include "common/result.h"
#include "net/process_spec.h"
#include "router/router_config.h"
#include "router/static_workers.h"

namespace pdjob::router {

struct RouterOptions {
  net::ProcessSpec spec;  // Empty spec.control: stand-alone, with the static workers below.
  RouterConfig config;
  std::vector<StaticWorker> workers;
  std::string worker_key;  // The key of all static workers; empty: they want none.
  bool plain = false;      // No worker is a prefill worker.
};

// Serves until SIGTERM or SIGINT (drains, exit 0), Shutdown, or the parent's death. Returns the
// exit code (common/exit_code.h).
int run_router(const RouterOptions& options);

}  // namespace pdjob::router
