// EngineThread: the shell that runs a worker's core and its engine on one thread, so that nothing
// stands between two steps: events in from a bounded channel, effects done at once, tokens out in
// one batch per step.
//
// submit(), cancel(), release(), drain(), on_endpoint_event() and standstill() are Thread-safe. The
// destructor joins.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <thread>
#include <unordered_map>
#include <unordered_set>
#include <variant>
#include <vector>

#include "common/channel.h"
#include "engine/engine.h"
#include "engine/text_stream.h"
#include "kvtransfer/kv_endpoint.h"
#include "worker/generation.h"
#include "worker/worker_core.h"

namespace pdjob::worker {

class EngineThread {
 public:
  // Called on the engine thread with what a turn produced; must not block.
  using Sink = std::function<void(OutputBatch)>;

  EngineThread(engine::Engine& engine, std::unique_ptr<WorkerCore> core, Duration kv_lease,
               Sink sink);
  ~EngineThread();

  // Must come before the first submit(). The endpoint outlives this object's thread, i.e. stop().
  void start(kvtransfer::KvEndpoint& endpoint);
  void stop();

  Status submit(GenerationRequest request);
  void cancel(RequestId request);
  // Nobody will fetch this offer. Unknown: nothing happens.
  void release(TransferId transfer);
  void drain();
  void on_endpoint_event(kvtransfer::EndpointEvent event);
  // For how long this thread has been at one turn: what has come, one step of the engine, its
  // samples. Zero while it waits for something to do. Whoever is at one turn for minutes hangs.
  Duration standstill() const;

 private:
  struct CancelCommand {
    RequestId request;
  };
  struct ReleaseCommand {
    TransferId transfer;
  };
  struct DrainCommand {};
  struct StopCommand {};
  using Command = std::variant<GenerationRequest, CancelCommand, ReleaseCommand, DrainCommand,
                               StopCommand, kvtransfer::EndpointEvent>;

  struct Choice {
    engine::TextStream text;
    Token newest = 0;
    bool begun = false;
    TokenOutput output;  // Of the newest token, until Deliver says what becomes of it.
  };
  // What the core does not need to know of a request.
  struct Live {
    GenerationRequest request;  // Its prompt is in `prompt`.
    Prompt prompt;
    std::vector<Choice> choices;
    std::vector<std::byte> tail;  // Fetched logits.
    bool ended = false;           // No client any more; only its offer or fetch is alive.
    bool transferring = false;    // Its transfer has not ended.
    bool awaiting = false;        // Its peer was asked to keep the rows.
    bool pair_suspect = false;    // As its failed fetch has said.
  };

  void run();
  void take(Command command);
  void take_endpoint_event(const kvtransfer::OfferAwaited& event);
  void take_endpoint_event(const kvtransfer::OfferDone& event);
  void take_endpoint_event(const kvtransfer::OfferFailed& event);
  void take_endpoint_event(kvtransfer::FetchDone& event);
  void take_endpoint_event(const kvtransfer::FetchFailed& event);
  void take_endpoint_event(const kvtransfer::FetchReleased& event);
  void release_offer(TransferId transfer);
  RequestId request_of(TransferId transfer) const;

  // Steps the core with `event` and with all that follows from its effects.
  void feed(Event event);
  // Does one effect; what follows from it is added to `events`.
  void apply(Effect& effect, std::vector<Event>& events);
  static std::span<const Token> tokens_of(const Live& live, const BatchItem& item);
  void apply_step(const RunStep& effect, std::vector<Event>& events);
  void apply_fetch(const StartFetch& effect, std::vector<Event>& events);
  void apply_deliver(const Deliver& effect);
  // Samples choices of `live` from `logits`: one token for `choice`, or, with `count` > 1, the
  // first token of choices 0 .. count-1. A choice that is continued begins with all it had.
  void sample(Live& live, uint32_t choice, uint32_t count, std::span<const float> logits,
              std::vector<SampledToken>& sampled, std::vector<SampleFailure>& failed);
  // Takes what the choice generated elsewhere; all but the last one are put out at once.
  Result<SampledToken> resume(Live& live, uint32_t index, const std::vector<Token>& tokens);
  // Takes the sampled token into the choice's text; true if it ends the generation.
  bool take_token(Live& live, Choice& choice, GeneratedToken token);
  void forget(RequestId request);
  void deliver_outputs();

  engine::Engine& engine_;
  std::unique_ptr<WorkerCore> core_;
  const Duration kv_lease_;
  const Sink sink_;
  kvtransfer::KvEndpoint* endpoint_ = nullptr;

  Channel<Command> inbox_;
  std::atomic<Instant> turn_began_ = kNever;  // kNever: it waits.
  // Only touched by the engine thread.
  std::unordered_map<RequestId, Live> live_;
  std::unordered_map<TransferId, RequestId> transfers_;  // Of every live request that has one.
  std::unordered_set<TransferId> awaited_;  // Offers that are waited for, known here or not yet.
  std::vector<Output> outputs_;
  std::vector<ReportKept> kept_;
  std::vector<Effect> effects_;
  bool stepped_ = false;  // This turn ran the engine.
  bool load_changed_ = false;
  bool stopping_ = false;

  std::thread thread_;
};

}  // namespace pdjob::worker
