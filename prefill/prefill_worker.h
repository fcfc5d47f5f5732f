// PrefillWorker: the core of a prefill worker. Computes prompts in chunks and offers the KV of each
// prompt to the decode worker that fetches it. Keeps the rows until they are fetched or the lease
// expires. It also serves whole generations to clients that connect directly.
//
//   queued --sequence free--> computing --last chunk--> committed --OfferEnded--> (cleared)
//      \__ cancelled, late       \__ cancelled: WithdrawOffer __________________________/
//
// A request's reply is one token (vLLM's convention). It is complete when the prompt is; the rows
// stay until OfferEnded. A client that leaves after that does not end the offer. In the two-hop
// protocol the client always leaves first, and its decode worker comes later.
//
// The last free sequence is for prompts that a decode worker waits for. Otherwise two queues could
// wait for each other until leases expire. All sequences here would hold rows whose requests queue
// at decode workers. All sequences there would be reserved for prompts that queue here. A client's
// request with several prompts never takes it, either, and the one that holds the fewest sequences
// goes first: otherwise one with many prompts would keep all others waiting.
//
// A prompt in the background starts after all others, and leaves them a few sequences, too.
//
// A sequence that becomes free keeps the rows of its prompt (worker/batching/prompt_cache.h). A
// later prompt with the same beginning offers these rows at once: they move while the rest is
// computed. Pure.
#pragma once

#include <map>
#include <optional>
#include <span>

#include "prefill/prefill_config.h"
#include "worker/batching/batcher.h"
#include "worker/batching/request_queue.h"
#include "worker/core/worker_core.h"

namespace pdjob::prefill {

class PrefillWorker final : public worker::WorkerCore {
 public:
  PrefillWorker(const PrefillConfig& config, const worker::EngineSize& engine);

  void step(const worker::Event& event, Instant now, std::vector<worker::Effect>& effects) override;
  Instant next_wakeup() const override;
  worker::CoreLoad load() const override;

 private:
  enum class OfferState { kComputing, kCommitted, kWithdrawn };
  struct Offer {
    SequenceId sequence;
    uint32_t rows = 0;
    worker::Prompt prompt;  // Null if the rows may be wrong.
    OfferState state = OfferState::kComputing;
    bool background = false;
  };
  using Effects = std::vector<worker::Effect>;

  void on(const worker::RequestArrived& event, Instant now, Effects& effects);
  void on(const worker::RequestCancelled& event, Instant now, Effects& effects);
  void on(const worker::EngineFree& event, Instant now, Effects& effects);
  void on(const worker::StepFinished& event, Instant now, Effects& effects);
  void on(const worker::StepFailed& event, Instant now, Effects& effects);
  void on(const worker::OfferAwaited& event, Instant now, Effects& effects);
  void on(const worker::OfferEnded& event, Instant now, Effects& effects);
  void on(const worker::LoadEnded& event, Instant now, Effects& effects);
  void on(const worker::LoadReleased& event, Instant now, Effects& effects);
  void on(const TimePassed& event, Instant now, Effects& effects);
  void on(const worker::DrainAsked& event, Instant now, Effects& effects);
  // Events that only decode workers get.
  template <class Other>
  void on(const Other& event, Instant now, Effects& effects);

  using Waiting = std::span<const worker::RequestArrived* const>;
  std::optional<RequestId> next_of_queue(Instant now) const;
  // The first of these that can start.
  std::optional<RequestId> next_of(Waiting waiting, const std::map<RequestId, uint32_t>& held,
                                   Instant now) const;
  std::optional<RequestId> next_awaited(Waiting waiting, Instant now) const;
  void admit(Instant now, Effects& effects);
  void fail(RequestId request, const Error& error, Effects& effects);
  void drop(RequestId request, worker::Batcher::Rows rows, Effects& effects);
  void report_if_drained(Effects& effects);

  const worker::EngineSize engine_;
  worker::RequestQueue queue_;
  worker::Batcher batcher_;
  std::map<RequestId, Offer> offers_;
  bool drained_reported_ = false;
};

worker::CoreFactory core_factory(const PrefillConfig& config);

}  // namespace pdjob::prefill
