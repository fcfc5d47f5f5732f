// One engine worker as a process: HTTP, control plane, KV endpoint and engine thread around the
// core of its role.
#pragma once

#include <memory>
#include <string>

#include "engine/engine_config.h"
#include "kvtransfer/config/kvtransfer_config.h"
#include "net/control/process_spec.h"
#include "worker/core/worker_core.h"

namespace pdjob::worker {

struct WorkerOptions {
  net::ProcessSpec spec;
  engine::EngineConfig engine;
  kvtransfer::KvTransferConfig kv;
  Duration drain_timeout = std::chrono::seconds(30);
};

// Serves until SIGTERM or SIGINT (drains, exit 0), Shutdown, or the parent's death. `make_core`
// builds the role's core once the engine's size is known. Returns the exit code
// (common/exit_code.h).
int run_worker(const WorkerOptions& options, const CoreFactory& make_core);

}  // namespace pdjob::worker
