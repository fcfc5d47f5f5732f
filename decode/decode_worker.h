// DecodeWorker: the core of a decode worker. Admits a request when enough sequences are free.
// Fetches the prompt's KV into the first of them, or computes a prompt that comes without KV. Then
// decodes all requests in continuous batches.
//
// While a request queues for sequences, it asks the prefill worker to keep its prompt's KV
// (AwaitFetch). Otherwise the lease could expire in a long queue, and the prompt would be computed
// twice.
//
//   queued --sequences free--> fetching --RowsFetched--> decoding --> (ended)
//      |                          |  \--FetchFailed--> (ended): the router tries another pair
//      |                          \--cancelled--> cancelling --FetchFailed, RowsFetched--> (ended)
//      \--local prompt--> computing, then decoding (Batcher)
//
// If a fetch fails while its peer may still write, its sequence stays retired until FetchReleased.
// No other request gets its rows before that.
//
// A request that finds no free sequence takes one of a request in the background. That one
// queues again, and goes on later with the tokens that it has (worker/batching/batcher.h).
//
// A sequence that becomes free keeps the rows of a prompt that was computed here. The next prompt
// computed here may reuse them (worker/batching/prompt_cache.h). Pure.
#pragma once

#include <map>
#include <vector>

#include "decode/decode_config.h"
#include "worker/batching/batcher.h"
#include "worker/batching/request_queue.h"
#include "worker/core/worker_core.h"

namespace pdjob::decode {

class DecodeWorker final : public worker::WorkerCore {
 public:
  DecodeWorker(const DecodeConfig& config, const worker::EngineSize& engine);

  void step(const worker::Event& event, Instant now, std::vector<worker::Effect>& effects) override;
  Instant next_wakeup() const override;
  worker::CoreLoad load() const override;

 private:
  struct Fetch {
    worker::RequestArrived request;
    worker::Held held;
    // The client left. The worker waits for the end of the fetch only to free its rows.
    bool cancelled = false;
  };
  using Effects = std::vector<worker::Effect>;

  void on(const worker::RequestArrived& event, Instant now, Effects& effects);
  void on(const worker::RequestCancelled& event, Instant now, Effects& effects);
  void on(const worker::EngineFree& event, Instant now, Effects& effects);
  void on(const worker::StepFinished& event, Instant now, Effects& effects);
  void on(const worker::StepFailed& event, Instant now, Effects& effects);
  void on(const worker::TailSampled& event, Instant now, Effects& effects);
  void on(const worker::RowsFetched& event, Instant now, Effects& effects);
  void on(const worker::FetchFailed& event, Instant now, Effects& effects);
  void on(const worker::FetchReleased& event, Instant now, Effects& effects);
  void on(const worker::LoadEnded& event, Instant now, Effects& effects);
  void on(const worker::LoadReleased& event, Instant now, Effects& effects);
  void on(const TimePassed& event, Instant now, Effects& effects);
  void on(const worker::DrainAsked& event, Instant now, Effects& effects);
  // Events that only prefill workers get.
  template <class Other>
  void on(const Other& event, Instant now, Effects& effects);

  // How many prompts of each client's request hold sequences.
  std::map<RequestId, uint32_t> prompts_by_group() const;
  bool too_many_fetches(Instant now) const;
  void admit(Instant now, Effects& effects);
  void take_tokens(const std::vector<worker::SampledToken>& sampled,
                   const std::vector<worker::SampleFailure>& failed, Instant now, Effects& effects);
  void fail(RequestId request, const Error& error, Effects& effects);
  void clear(const worker::Held& held, Effects& effects);
  void report_if_drained(Effects& effects);

  const worker::EngineSize engine_;
  worker::RequestQueue queue_;
  worker::Batcher batcher_;
  std::map<RequestId, Fetch> fetches_;
  std::map<RequestId, SequenceId> retired_;
  bool drained_reported_ = false;
};

worker::CoreFactory core_factory(const DecodeConfig& config);

}  // namespace pdjob::decode
