// PrefillWorker: the core of a prefill worker. Computes prompts in chunks, offers the KV of each to
// the decode worker that fetches it, and keeps the rows until they are fetched or the lease is
// over. It also answers whole generations of clients that come directly.
//
//   queued --sequence free--> computing --last chunk--> committed --OfferEnded--> (cleared)
//      \__ cancelled, late       \__ cancelled: WithdrawOffer __________________________/
//
// A request's reply (one token, vLLM's convention) is complete when its prompt is; its rows stay
// until OfferEnded. A client that leaves after that does not end the offer: in the two-hop protocol
// it always leaves, and its decode worker comes later.
//
// The last free sequence is for prompts that a decode worker waits for. Otherwise two queues could
// wait for each other until leases end: all sequences here hold rows whose requests queue at decode
// workers, whose sequences are all reserved for prompts that queue here.
//
// A sequence that comes free keeps the rows of its prompt (worker/prompt_cache.h). A prompt that
// begins with them is offered with them at once: they move while the rest is computed. Pure.
#pragma once

#include <map>
#include <optional>

#include "prefill/prefill_config.h"
#include "worker/batcher.h"
#include "worker/request_queue.h"
#include "worker/worker_core.h"

namespace pdjob::prefill {

class PrefillWorker final : public worker::WorkerCore {
 public:
  PrefillWorker(const PrefillConfig& config, const worker::EngineSize& engine);

  void step(const worker::Event& event, Instant now, std::vector<worker::Effect>& effects) override;
  Instant next_deadline() const override;
  worker::CoreLoad load() const override;

 private:
  enum class OfferState { kComputing, kCommitted, kWithdrawn };
  struct Offer {
    SequenceId sequence;
    uint32_t rows = 0;
    worker::Prompt prompt;  // Null once the rows may be wrong.
    OfferState state = OfferState::kComputing;
  };
  using Effects = std::vector<worker::Effect>;

  void on(const worker::RequestArrived& event, Instant now, Effects& effects);
  void on(const worker::RequestCancelled& event, Instant now, Effects& effects);
  void on(const worker::EngineFree& event, Instant now, Effects& effects);
  void on(const worker::StepFinished& event, Instant now, Effects& effects);
  void on(const worker::StepFailed& event, Instant now, Effects& effects);
  void on(const worker::OfferAwaited& event, Instant now, Effects& effects);
  void on(const worker::OfferEnded& event, Instant now, Effects& effects);
  void on(const worker::TimePassed& event, Instant now, Effects& effects);
  void on(const worker::DrainAsked& event, Instant now, Effects& effects);
  // Of decode workers only.
  template <class Other>
  void on(const Other& event, Instant now, Effects& effects);

  std::optional<RequestId> next_of_queue() const;
  void admit(Effects& effects);
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
