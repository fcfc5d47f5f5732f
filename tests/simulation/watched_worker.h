// WatchedWorker: a simulated worker whose core is watched. Each event and effect is traced, and
// checked against the invariants (invariants.h).
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "launcher/simulator/sim_worker.h"
#include "tests/simulation/faulty_engine.h"
#include "tests/simulation/invariants.h"

namespace pdjob::simulation {

// Wraps every core that the world makes, so that canaries can break it.
using Sabotage =
    std::function<std::unique_ptr<worker::WorkerCore>(std::unique_ptr<worker::WorkerCore>)>;

// Outlives the worker.
struct Watcher {
  Invariants& invariants;
  std::function<void(const std::string& who, const std::string& what)> trace;
  Sabotage sabotage;
  uint32_t requests_queued = 0;
};

class WatchedWorker final : public SimWorker {
 public:
  WatchedWorker(const SimScene& scene, const Watcher& watcher, SimWorkerOptions options,
                std::unique_ptr<FaultyEngine> engine, uint64_t seed, std::function<void()> end);

  FaultyEngine& faulty() { return static_cast<FaultyEngine&>(engine()); }
  std::string busy_with() const override;

 private:
  class WatchedCore;
  struct Watch {
    std::unique_ptr<CoreWatch> core;
    const SimWorker* worker = nullptr;  // Null until it is made.
  };

  WatchedWorker(const SimScene& scene, const Watcher& watcher, SimWorkerOptions options,
                std::unique_ptr<FaultyEngine> engine, uint64_t seed, std::function<void()> end,
                const std::shared_ptr<Watch>& watch);
  static SimWorkerOptions watched(SimWorkerOptions options, const Watcher& watcher,
                                  const std::shared_ptr<Watch>& watch);

  const std::shared_ptr<Watch> watch_;
};

}  // namespace pdjob::simulation
