// A worker without HTTP, for tests: core, engine thread, engine and KV endpoint. Requests go in,
// outputs come out.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <variant>
#include <vector>

#include <gtest/gtest.h>

#include "common/os/channel.h"
#include "common/os/real_clock.h"
#include "engine/engine.h"
#include "worker/core/engine_thread.h"

namespace pdjob::worker {

inline constexpr Duration kPatience = std::chrono::seconds(20);

class TestWorker {
 public:
  struct Options {
    std::string name;
    CoreFactory make_core;
    engine::EngineConfig engine = {.kind = engine::EngineKind::kFake,
                                   .sequences = 2,
                                   .tokens_per_sequence = 128,
                                   .batch_tokens = 32,
                                   .fake_delay_per_token = std::chrono::microseconds(100)};
    kvtransfer::KvTransferConfig kv = {};
    Duration kv_lease = kPatience;
    kvtransfer::TransportOpener open_transport = {};
  };

  explicit TestWorker(const Options& options) {
    engine_ = *engine::open_engine(options.engine);
    const engine::EngineConfig& built = engine_->config();
    thread_ = std::make_unique<EngineThread>(
        *engine_,
        options.make_core({.sequences = built.sequences,
                           .rows_per_sequence = built.tokens_per_sequence,
                           .batch_tokens = built.batch_tokens}),
        options.kv_lease, [this](OutputBatch batch) {
          rows_used_ = batch.load.rows_used;
          for (Output& output : batch.outputs) {
            outputs_.push_always(std::move(output));
          }
        });
    endpoint_ = *kvtransfer::KvEndpoint::start({.config = options.kv,
                                                .engine_id = options.name,
                                                .fingerprint = {{"model", engine_->facts().name}},
                                                .sink =
                                                    [this](kvtransfer::EndpointEvent event) {
                                                      thread_->on_endpoint_event(std::move(event));
                                                    },
                                                .device = engine_->kv_region(SequenceId{0}).device,
                                                .open_transport = options.open_transport});
    thread_->start(*endpoint_);
  }
  ~TestWorker() {
    thread_->stop();
    endpoint_.reset();
  }

  EngineThread& thread() { return *thread_; }
  const engine::Engine& engine() const { return *engine_; }
  const kvtransfer::EndpointAddress& address() const { return endpoint_->address(); }

  struct Ask {
    uint64_t id = 1;
    KvMode kv = KvMode::kLocal;
    std::string prompt = "the quick brown fox jumps over the lazy dog";
    int32_t max_tokens = 8;
    uint32_t choices = 1;
    StopParams stop = {};
    TransferId transfer = {1, 2};
  };
  GenerationRequest request(const Ask& ask) const {
    GenerationRequest made{.id = RequestId{ask.id},
                           .prompt = engine_->vocabulary().tokenize(ask.prompt, false, false),
                           .stop = ask.stop,
                           .ignore_eos = true,
                           .kv = ask.kv,
                           .transfer = ask.transfer};
    made.stop.max_tokens = ask.max_tokens;
    for (uint32_t choice = 0; choice < ask.choices; ++choice) {
      made.samplers.push_back(
          *engine::open_sampler(*engine_, {.seed = 7 + choice}, made.prompt, made.stop));
    }
    return made;
  }

  // Returns the next output. If none comes in time, the test fails and it returns a default one.
  Output next() {
    for (;;) {
      if (next_ == taken_.size()) {
        taken_.clear();
        next_ = 0;
        outputs_.wait_and_drain(taken_, real_now() + kPatience);
      }
      if (next_ == taken_.size()) {
        ADD_FAILURE() << "no output";
        return {};
      }
      Output& output = taken_[next_++];
      const auto* reused = std::get_if<PromptReused>(&output);
      if (reused == nullptr) {
        return std::move(output);
      }
      rows_reused_ = reused->rows;
    }
  }
  // Rows reused by the last prompt computed here, among the outputs read so far.
  uint32_t rows_reused() const { return rows_reused_; }
  // Waits until all requests and offers have ended.
  void wait_idle() const {
    const Instant patience = real_now() + kPatience;
    while (rows_used_ > 0 && real_now() < patience) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    EXPECT_EQ(rows_used_, 0U);
  }
  // Returns the next output, which must be a `Wanted`. Otherwise the test fails and it returns a
  // default one.
  template <class Wanted>
  Wanted expect() {
    Output output = next();
    if (!std::holds_alternative<Wanted>(output)) {
      const auto* failed = std::get_if<RequestFailed>(&output);
      ADD_FAILURE() << "got an output of kind " << output.index()
                    << (failed != nullptr ? ": " + failed->error.message : "");
      return {};
    }
    return std::get<Wanted>(std::move(output));
  }
  std::string text(int32_t tokens) {
    std::string text;
    for (int32_t i = 0; i < tokens; ++i) {
      text += expect<TokenOutput>().text;
    }
    return text;
  }

 private:
  std::unique_ptr<engine::Engine> engine_;
  std::atomic<uint64_t> rows_used_ = 0;
  Channel<Output> outputs_{1024};
  std::vector<Output> taken_;
  size_t next_ = 0;
  uint32_t rows_reused_ = 0;
  std::unique_ptr<EngineThread> thread_;
  std::unique_ptr<kvtransfer::KvEndpoint> endpoint_;
};

}  // namespace pdjob::worker
