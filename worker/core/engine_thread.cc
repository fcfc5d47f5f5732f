#include "worker/core/engine_thread.h"

#include <utility>
#include <vector>

#include <pthread.h>

#include "common/limits.h"
#include "common/os/real_clock.h"
#include "common/random.h"

namespace pdjob::worker {

EngineThread::EngineThread(engine::Engine& engine, std::unique_ptr<WorkerCore> core,
                           Duration kv_lease, Sink sink)
    : loop_(engine, std::move(core),
            {.kv_lease = kv_lease,
             .now = real_now,
             .sink = std::move(sink),
             .transfer_seed = entropy(),
             .before_step = [this](size_t tokens) { before_step(tokens); }}),
      inbox_(limits::kChannelMax) {}

EngineThread::~EngineThread() { stop(); }

void EngineThread::start(kvtransfer::KvTransfers& transfers) {
  loop_.attach(transfers);
  thread_ = std::thread([this] { run(); });
}

void EngineThread::stop() {
  inbox_.close();
  if (thread_.joinable()) {
    thread_.join();
  }
}

Status EngineThread::submit(GenerationRequest request) {
  if (!inbox_.try_push(bound(std::move(request)))) {
    return Error{ErrorCode::kOverloaded, "this worker's inbox is full"};
  }
  return ok();
}

Standstill EngineThread::standstill() const {
  return {.lasted = turn_.lasted(real_now()), .patience = patience_};
}

void EngineThread::before_step(size_t tokens) {
  step_tokens_ = tokens;
  patience_ = pace_.patience(tokens);
}

void EngineThread::after_turn() {
  if (step_tokens_ > 0) {
    const Instant now = real_now();
    pace_.took(step_tokens_, now - turn_.began(), now);
    step_tokens_ = 0;
  }
}

void EngineThread::run() {
  pthread_setname_np(pthread_self(), "engine");
  std::vector<EngineCommand> commands;
  Instant due = Instant::min();
  while (!inbox_.closed()) {
    commands.clear();
    if (due == Instant::min()) {
      inbox_.drain(commands);
    } else {
      turn_.end();
      inbox_.wait_and_drain(commands, due);
    }
    turn_.begin(real_now());
    due = loop_.turn(commands);
    after_turn();
  }
}

}  // namespace pdjob::worker
