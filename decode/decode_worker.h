// DecodeWorker: the core of a decode worker. Admits a request when its sequences are free, has the
// prompt's KV fetched into the first of them (or computes a prompt itself that comes without KV),
// then decodes all requests in continuous batches.
//
// While a request queues for sequences, the worker that has its prompt's KV keeps it (AwaitFetch):
// else its lease would end before a long queue does, and the prompt would be computed twice.
//
//   queued --sequences free--> fetching --RowsFetched--> decoding --> (ended)
//      |                          |  \--FetchFailed--> (ended): the router tries another pair
//      |                          \--cancelled--> cancelling --FetchFailed, RowsFetched--> (ended)
//      \--local prompt--> computing, then decoding (Batcher)
//
// A fetch that failed while its peer may still write leaves its sequence retired until
// FetchReleased: nobody else gets the rows.
//
// A sequence that comes free keeps the rows of its prompt if it was computed here, for the next one
// that is (worker/prompt_cache.h). Pure.
#pragma once

#include <map>
#include <vector>

#include "decode/decode_config.h"
#include "worker/batcher.h"
#include "worker/request_queue.h"
#include "worker/worker_core.h"

namespace pdjob::decode {

class DecodeWorker final : public worker::WorkerCore {
 public:
  DecodeWorker(const DecodeConfig& config, const worker::EngineSize& engine);

  void step(const worker::Event& event, Instant now, std::vector<worker::Effect>& effects) override;
  Instant next_deadline() const override;
  worker::CoreLoad load() const override;

 private:
  struct Fetch {
    worker::RequestArrived request;
    worker::Held held;
    bool cancelled =
        false;  // The client left; the outcome of the fetch is awaited only for its rows.
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
  void on(const worker::TimePassed& event, Instant now, Effects& effects);
  void on(const worker::DrainAsked& event, Instant now, Effects& effects);
  // Of prefill workers only.
  template <class Other>
  void on(const Other& event, Instant now, Effects& effects);

  void admit(Effects& effects);
  void take_tokens(const std::vector<worker::SampledToken>& sampled,
                   const std::vector<worker::SampleFailure>& failed, Effects& effects);
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
