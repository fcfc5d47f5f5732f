// EngineThread: an EngineLoop on a thread of its own, so that nothing delays the next step.
// Commands come in through a bounded channel.
//
// All methods but start() and stop() are Thread-safe. The destructor joins.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <thread>

#include "common/os/channel.h"
#include "common/os/turn_watch.h"
#include "kvtransfer/kv_transfers.h"
#include "worker/core/engine_loop.h"
#include "worker/core/engine_queue.h"
#include "worker/core/step_pace.h"

namespace pdjob::worker {

class EngineThread final : public EngineQueue {
 public:
  // Called on the engine thread with the outputs of a turn; must not block.
  using Sink = std::function<void(OutputBatch)>;

  EngineThread(engine::Engine& engine, std::unique_ptr<WorkerCore> core, Duration kv_lease,
               Sink sink);
  ~EngineThread();

  // Must come before the first submit(). `transfers` outlives this object's thread, i.e. stop().
  void start(kvtransfer::KvTransfers& transfers);
  void stop();

  Status submit(GenerationRequest request) override;
  void cancel(RequestId request) override { inbox_.push_always(RequestCancelled{request}); }
  void release(TransferId transfer) override { inbox_.push_always(ReleaseOffer{transfer}); }
  Standstill standstill() const override;
  void drain() { inbox_.push_always(DrainAsked{}); }
  void on_endpoint_event(kvtransfer::EndpointEvent event) { inbox_.push_always(std::move(event)); }

 private:
  void run();
  void before_step(size_t tokens);
  void after_turn();

  EngineLoop loop_;  // This and the next two are used only by the thread.
  StepPace pace_;
  size_t step_tokens_ = 0;  // Of this turn; 0: it has no step so far.
  Channel<EngineCommand> inbox_;
  TurnWatch turn_;
  std::atomic<Duration> patience_ = Duration::zero();
  std::thread thread_;
};

}  // namespace pdjob::worker
