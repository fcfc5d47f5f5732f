// EngineThread: the shell that runs a worker's core and its engine on one thread, so that nothing
// delays the next step. Events come in through a bounded channel. Effects are applied at once.
// Tokens go out in one batch per step.
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

#include "common/os/channel.h"
#include "engine/engine.h"
#include "engine/text_stream.h"
#include "kvtransfer/kv_endpoint.h"
#include "worker/core/generation.h"
#include "worker/core/worker_core.h"

namespace pdjob::worker {

class EngineThread {
 public:
  // Called on the engine thread with the outputs of a turn; must not block.
  using Sink = std::function<void(OutputBatch)>;

  EngineThread(engine::Engine& engine, std::unique_ptr<WorkerCore> core, Duration kv_lease,
               Sink sink);
  ~EngineThread();

  // Must come before the first submit(). The endpoint outlives this object's thread, i.e. stop().
  void start(kvtransfer::KvEndpoint& endpoint);
  void stop();

  Status submit(GenerationRequest request);
  void cancel(RequestId request);
  // Ends an offer that no worker will fetch. Does nothing if the offer is unknown.
  void release(TransferId transfer);
  void drain();
  void on_endpoint_event(kvtransfer::EndpointEvent event);
  // How long the current turn has taken: its events, one engine step, its samples. Zero while the
  // thread waits for work. A thread that spends minutes in one turn hangs.
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
    TokenOutput output;  // The newest token's output, kept until Deliver.
  };
  // The state of a request that the core does not need.
  struct Live {
    GenerationRequest request;  // Its prompt is in `prompt`.
    Prompt prompt;
    std::vector<Choice> choices;
    std::vector<std::byte> tail;  // Fetched logits.
    bool ended = false;           // The client is gone; only its offer or fetch is alive.
    bool transferring = false;    // Its transfer has not ended.
    bool awaiting = false;        // Its peer was asked to keep the rows.
    bool pair_suspect = false;    // Set by its failed fetch.
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

  // Steps the core with `event`, then with all events that its effects cause.
  void feed(Event event);
  // Applies one effect and adds the events that it causes to `events`.
  void apply(Effect& effect, std::vector<Event>& events);
  static std::span<const Token> tokens_of(const Live& live, const BatchItem& item);
  void apply_step(const RunStep& effect, std::vector<Event>& events);
  void apply_fetch(const StartFetch& effect, std::vector<Event>& events);
  void apply_deliver(const Deliver& effect);
  // Samples from `logits`: one token for `choice` of `live`, or, if `count` > 1, the first token of
  // choices 0 .. count-1. A continued choice begins with all its earlier tokens.
  void sample(Live& live, uint32_t choice, uint32_t count, std::span<const float> logits,
              std::vector<SampledToken>& sampled, std::vector<SampleFailure>& failed);
  // Takes the tokens that the choice generated elsewhere. All but the last are output at once.
  Result<SampledToken> resume(Live& live, uint32_t index, const std::vector<Token>& tokens);
  // Adds the sampled token to the choice's text. Returns true if it ends the generation.
  bool take_token(Live& live, Choice& choice, GeneratedToken token);
  void forget(RequestId request);
  void deliver_outputs();

  engine::Engine& engine_;
  std::unique_ptr<WorkerCore> core_;
  const Duration kv_lease_;
  const Sink sink_;
  kvtransfer::KvEndpoint* endpoint_ = nullptr;

  Channel<Command> inbox_;
  std::atomic<Instant> turn_began_ = kNever;  // kNever while it waits.
  // Used only by the engine thread.
  std::unordered_map<RequestId, Live> live_;
  std::unordered_map<TransferId, RequestId> transfers_;  // One per live request with a transfer.
  std::unordered_set<TransferId> awaited_;  // Offers that peers wait for, even unknown ones.
  std::vector<Output> outputs_;
  std::vector<ReportKept> kept_;
  std::vector<Effect> effects_;
  bool stepped_ = false;  // This turn ran the engine.
  bool load_changed_ = false;
  bool stopping_ = false;

  std::thread thread_;
};

}  // namespace pdjob::worker
