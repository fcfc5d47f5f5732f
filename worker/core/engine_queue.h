// EngineQueue: what an API asks of the thread that runs its engine. EngineThread is the real one.
// Thread-safe.
#pragma once

#include "common/id.h"
#include "common/result.h"
#include "worker/core/generation.h"
#include "worker/core/standstill.h"

namespace pdjob::worker {

class EngineQueue {
 public:
  // Fails with kOverloaded if too many requests wait.
  virtual Status submit(GenerationRequest request) = 0;
  virtual void cancel(RequestId request) = 0;
  // Ends an offer that no worker will fetch. Does nothing if the offer is unknown.
  virtual void release(TransferId transfer) = 0;
  // How long the current turn has taken: its events, one engine step, its samples. Zero while the
  // thread waits for work. A thread that spends minutes in one turn hangs.
  virtual Standstill standstill() const = 0;

 protected:
  ~EngineQueue() = default;
};

}  // namespace pdjob::worker
