// One engine worker as a process: HTTP, control plane, KV endpoint and engine thread around the
// core of its role.
#pragma once

#include <functional>
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
  // The core of each role that this worker can have.
  std::function<CoreFactory(net::Role)> core_of;
  // Both roles use the same engine, so the launcher may change this worker's role.
  bool changes_role = false;
  std::string weights_dir;  // Of a rollout job: where new weights are found.
};

// Serves until SIGTERM, SIGINT or the launcher's Drain (finishes its requests, exit 0), or the
// parent's death. Returns the exit code (common/exit_code.h).
int run_worker(const WorkerOptions& options);

}  // namespace pdjob::worker
