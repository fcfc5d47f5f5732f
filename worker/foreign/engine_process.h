// A worker whose engine is of another make: the shell of the EngineSupervisor core. The engine is a
// child process and listens on its own port. The worker registers that port, reports the engine's
// load, drains it and ends with it.
#pragma once

#include <string>

#include "common/result.h"
#include "common/time.h"
#include "engine/engine_config.h"
#include "engine/recipes/engine_command.h"
#include "net/control/process_spec.h"

namespace pdjob::worker {

struct ForeignWorkerOptions {
  net::ProcessSpec spec;
  engine::EngineConfig engine;  // Of kind kForeign.
  Duration lease{};             // kvtransfer.lease
  Duration drain_timeout = std::chrono::seconds(30);
  Duration start_timeout = std::chrono::minutes(5);
  engine::StoreUse store = {};  // The KV store that the engine uses, or is.
  std::string fingerprint;      // WorkerEntry::fingerprint.
  std::string weights_dir;      // In a rollout job: where new weights are found.
  std::string guard_program = "/proc/self/exe";
};

// As run_worker().
int run_foreign_worker(const ForeignWorkerOptions& options);

}  // namespace pdjob::worker
