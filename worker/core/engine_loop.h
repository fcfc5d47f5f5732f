// EngineLoop: the shell of a worker's core. It runs the core and its engine, turn by turn: events
// come in as commands, effects are applied at once, tokens go out in one batch per turn.
//
// EngineThread gives it a thread of its own; a simulation runs it on virtual time. Loop-bound.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <unordered_map>
#include <unordered_set>
#include <variant>
#include <vector>

#include "engine/engine.h"
#include "engine/text_stream.h"
#include "kvtransfer/kv_transfers.h"
#include "worker/blocks/block_exchange.h"
#include "worker/core/generation.h"
#include "worker/core/worker_core.h"

namespace pdjob::worker {

// Ends an offer that no worker will fetch. Does nothing if the offer is unknown.
struct ReleaseOffer {
  TransferId transfer;
};
using EngineCommand = std::variant<GenerationRequest, RequestCancelled, ReleaseOffer, DrainAsked,
                                   kvtransfer::EndpointEvent>;

struct EngineLoopOptions {
  Duration kv_lease{};  // How long an offer waits for its fetch.
  // The time of this moment: a step may take long.
  std::function<Instant()> now;
  // Called with the outputs of a turn, or of its first half; must not block.
  std::function<void(OutputBatch)> sink;
  uint64_t transfer_seed = 0;  // BlockExchange::Options::seed
  // Called before a step over so many tokens.
  std::function<void(size_t)> before_step = [](size_t /*tokens*/) {};
};

class EngineLoop {
 public:
  EngineLoop(engine::Engine& engine, std::unique_ptr<WorkerCore> core, EngineLoopOptions options);

  // Must come before the first turn(). Events of these transfers come as commands.
  void attach(kvtransfer::KvTransfers& transfers) {
    transfers_ = &transfers;
    blocks_.attach(transfers);
  }

  // Takes the commands, then runs at most one step of the engine. Returns when the next turn is due
  // even if no command comes: at once after a step.
  Instant turn(std::span<EngineCommand> commands);

 private:
  struct Choice {
    engine::TextStream text;
    Token newest = 0;
    bool begun = false;
    uint32_t tokens = 0;  // So far.
    TokenOutput output;   // The newest token's output, kept until Deliver.
  };
  // kAwaited: the peer was asked to keep the rows.
  enum class TransferState { kNone, kAwaited, kUnderWay };
  // The state of a request that the core does not need. It lives until the request has ended and
  // its transfer, too.
  struct Live {
    GenerationRequest request;  // Its prompt is in `prompt`.
    Prompt prompt;
    std::vector<Choice> choices;
    PromptReader reader;
    std::vector<std::byte> tail = {};  // Fetched logits.
    uint32_t reused = 0;               // Rows of its prompt that existed already.
    SequenceId fetched_into;
    TransferState transfer = TransferState::kNone;
    bool ended = false;         // The client is gone.
    bool pair_suspect = false;  // Set by its failed fetch.
  };

  Instant now() const { return options_.now(); }
  void take(EngineCommand& command);
  void take_endpoint_event(kvtransfer::EndpointEvent& event);
  void take_block_news(const std::vector<BlockExchange::News>& news, std::vector<Event>& events);
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
  // Of a continued request: its prompt, and what its choice has generated.
  static Prompt all_tokens(const Live& live);
  static std::span<const Token> tokens_of(const Live& live, const BatchItem& item);
  void apply_step(const RunStep& effect, std::vector<Event>& events);
  void apply_fetch(const StartFetch& effect, std::vector<Event>& events);
  void apply_deliver(const Deliver& effect);
  // Samples from `logits`: one token for `choice` of `live`, or, if `count` > 1, the first token of
  // choices 0 .. count-1. A continued choice begins with all its earlier tokens.
  void sample(Live& live, uint32_t choice, uint32_t count, std::span<const float> logits,
              std::vector<SampledToken>& sampled, std::vector<SampleFailure>& failed);
  // Takes what the step put out of the item's tokens. The last ones of a prompt complete the
  // output.
  Status read_prompt(Live& live, const BatchItem& item);
  // Takes the tokens that the choice generated elsewhere. All but the last are output at once.
  Result<SampledToken> resume(Live& live, uint32_t index, const std::vector<Token>& tokens);
  // Adds the sampled token to the choice's text. Returns true if it ends the generation.
  bool take_token(Live& live, Choice& choice, GeneratedToken token);
  void forget(RequestId request);
  void deliver_outputs();

  engine::Engine& engine_;
  std::unique_ptr<WorkerCore> core_;
  const EngineLoopOptions options_;
  kvtransfer::KvTransfers* transfers_ = nullptr;
  BlockExchange blocks_;

  std::unordered_map<RequestId, Live> live_;
  std::unordered_map<TransferId, RequestId> by_transfer_;  // Of live requests with a transfer.
  std::unordered_set<TransferId> awaited_;  // Offers that peers wait for, even unknown ones.
  std::vector<Output> outputs_;
  std::vector<ReportKept> kept_;
  std::vector<Effect> effects_;
  EngineWork work_;
  bool stepped_ = false;  // This turn ran the engine.
  bool load_changed_ = false;
};

}  // namespace pdjob::worker
