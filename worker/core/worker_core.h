// The core of an engine worker decides which request gets which sequence, and what the engine runs
// next. Prefill and decode workers have different cores (prefill/prefill_worker.h,
// decode/decode_worker.h). This file is their interface to the shell that runs either
// (engine_loop.h).
//
// A core knows the tokens of a prompt, because it decides which of its rows exist already. It knows
// only the number of generated tokens. Samplers and texts stay in the shell, keyed by RequestId.
// Pure.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "common/core.h"
#include "common/generation.h"
#include "common/id.h"
#include "common/result.h"
#include "common/time.h"
#include "engine/engine.h"
#include "net/control/message.h"
#include "worker/blocks/block_totals.h"

namespace pdjob::worker {

// The tokens of a prompt, and the tenant that owns them. Tenants never share rows: the time to
// compute a prompt would otherwise show one tenant what another one asked.
struct OwnedPrompt {
  std::vector<Token> tokens;
  std::string tenant;  // Empty if there are no tenants.
};
// Null if unknown: then no other prompt can reuse the rows.
using Prompt = std::shared_ptr<const OwnedPrompt>;
inline Prompt make_prompt(std::vector<Token> tokens, std::string tenant = {}) {
  return std::make_shared<const OwnedPrompt>(std::move(tokens), std::move(tenant));
}

// Where the KV of a prompt comes from and goes to.
enum class KvMode {
  kLocal,  // Computed and decoded here.
  kOffer,  // Computed here, decoded elsewhere: rows are offered until a decode worker fetches them.
  kFetch,  // Computed elsewhere, fetched, decoded here.
};

// --- events

struct RequestArrived {
  RequestId request;
  // The first prompt of the same client's request. Default: it has no other prompt.
  RequestId group = {};
  uint32_t prompt_tokens = 0;  // At least 1.
  uint32_t choices = 1;
  // Per choice. prompt_tokens + max_tokens may exceed the rows of a sequence; generation then ends
  // by length.
  uint32_t max_tokens = 1;
  KvMode kv = KvMode::kLocal;
  Instant deadline = kNever;  // A request still queued by then fails with kTimeout.
  Prompt prompt = nullptr;    // Has prompt_tokens tokens.
  // Something is read of each of its prompt's tokens: all of them are computed, in small steps.
  bool reads_prompt = false;
  bool has_store = false;  // A store may have rows of its prompt's beginning.
  // It takes what other requests leave, and may have to give its sequence back.
  bool background = false;
  // So many tokens of its only choice are delivered already: it gave its sequence back after them.
  uint32_t generated = 0;
  // For kOffer only:
  bool awaited = false;  // A decode worker has reserved rows and waits.
  bool two_hop = false;  // No decode worker can wait yet: only the reply says where the rows are.
};
inline RequestId group_of(const RequestArrived& request) {
  return request.group == RequestId{} ? request.request : request.group;
}
struct RequestCancelled {
  RequestId request;
};
// The engine is idle. The core answers with at most one RunStep; its outcome comes before the next
// EngineFree.
struct EngineFree {};
struct SampledToken {
  RequestId request;
  uint32_t choice = 0;
  bool stopped = false;  // Ended by an end token, a stop token or a stop string.
  uint32_t count = 1;    // Above 1 for a continued choice: it begins with known tokens.
};
// The sampler failed (broken logits, grammar at a dead end). Only this request fails.
struct SampleFailure {
  RequestId request;
  Error error;
};
struct StepFinished {
  std::vector<SampledToken> sampled;
  std::vector<SampleFailure> failed;
};
struct StepFailed {  // The engine refused the whole batch.
  Error error;
};
// The answer to SampleTail.
struct TailSampled {
  std::vector<SampledToken> sampled;
  std::vector<SampleFailure> failed;
};
struct RowsFetched {  // All rows and the tail have arrived.
  RequestId request;
};
struct FetchFailed {
  RequestId request;
  Error error;
  bool region_safe = true;  // False if the peer may still write; FetchReleased follows.
};
struct FetchReleased {
  RequestId request;
};
struct OfferAwaited {  // A decode worker began to wait for this request's rows, or stopped.
  RequestId request;
  bool awaited = true;
};
struct OfferEnded {  // Fetched or given up: the transfer no longer owns the rows.
  RequestId request;
};
// The answer to LoadRows: the first `rows` rows of the sequence are the prompt's.
struct LoadEnded {
  SequenceId sequence;
  uint32_t rows = 0;
  bool region_safe = true;  // False if the store may still write; LoadReleased follows.
};
struct LoadReleased {
  SequenceId sequence;
};
// The core refuses new requests and reports ReportDrained when all have ended.
struct DrainAsked {};

using Event = std::variant<RequestArrived, RequestCancelled, EngineFree, StepFinished, StepFailed,
                           TailSampled, RowsFetched, FetchFailed, FetchReleased, OfferAwaited,
                           OfferEnded, LoadEnded, LoadReleased, TimePassed, DrainAsked>;

// --- effects; the shell applies them in order

struct BatchItem {
  SequenceId sequence;
  RequestId request;
  uint32_t choice = 0;
  // True: tokens [first, first + count) of the prompt. False: of the choice's generated tokens;
  // that is its newest token, except in a continued choice.
  bool prompt = false;
  uint32_t first = 0;
  uint32_t count = 1;
  // How many choices, from 0 up, are sampled from the last token's logits. All choices at the end
  // of a prompt; 1 for a newest token; 0 if more tokens follow.
  uint32_t samples = 0;
};
struct RunStep {  // Items ordered by sequence.
  std::vector<BatchItem> items;
};
// The request queues for sequences. Its peer must keep the offer until StartFetch or EndRequest.
struct AwaitFetch {
  RequestId request;
};
// Reserve the rows, then fetch into them. FetchFailed also reports a failed reservation.
struct StartFetch {
  RequestId request;
  SequenceId sequence;
  uint32_t rows = 0;
};
struct CancelFetch {  // FetchFailed follows.
  RequestId request;
};
struct SampleTail {  // Choices 0 .. choices-1 are sampled from the fetched logits.
  RequestId request;
  uint32_t choices = 1;
};
struct StartOffer {
  RequestId request;
  SequenceId sequence;
};
struct OfferRows {  // Rows [0, ready) are final.
  RequestId request;
  uint32_t ready = 0;
};
// All rows are final. The tail is the logits of `sequence` from the step that just finished.
struct CommitOffer {
  RequestId request;
  SequenceId sequence;
  uint32_t rows = 0;
};
struct WithdrawOffer {  // OfferEnded follows.
  RequestId request;
};
// Ask the store for rows of the prompt's beginning. `rows` of them are there. LoadEnded answers it.
struct LoadRows {
  RequestId request;
  SequenceId sequence;
  Prompt prompt;  // Null: all tokens that its only choice has so far.
  uint32_t rows = 0;
};
struct CancelLoad {  // LoadEnded follows soon.
  SequenceId sequence;
};
struct ForkSequence {
  SequenceId from;
  SequenceId to;
};
struct ClearSequence {
  SequenceId sequence;
};
struct TrimSequence {  // Keeps rows [0, rows), drops the others.
  SequenceId sequence;
  uint32_t rows = 0;
};
// The prompt reuses `rows` rows. Reported once per prompt computed here, if the prefix cache is on.
struct ReportReuse {
  RequestId request;
  uint32_t prompt_tokens = 0;
  uint32_t rows = 0;
};
// The first `rows` rows of a sequence belong to the first tokens of this prompt. 0 rows: unknown.
struct PromptRows {
  Prompt prompt;
  uint32_t rows = 0;
};
// The rows that a free sequence keeps for prompts with the same beginning. 0 rows: the sequence was
// taken or is empty.
struct ReportKept {
  SequenceId sequence;
  PromptRows kept;
};
// Sends the choice's newest token to the client; the last one has a finish reason.
struct Deliver {
  RequestId request;
  uint32_t choice = 0;
  FinishReason finish = FinishReason::kNone;
};
// Every choice is delivered, or the client has its error. The shell drops its state of the request.
struct EndRequest {
  RequestId request;
};
// The client gets the error. EndRequest follows at once, or when nothing is in flight any more.
struct FailRequest {
  RequestId request;
  Error error;
};
struct ReportDrained {};  // Once in a core's life.

using Effect = std::variant<RunStep, AwaitFetch, StartFetch, CancelFetch, SampleTail, StartOffer,
                            OfferRows, CommitOffer, WithdrawOffer, LoadRows, CancelLoad,
                            ForkSequence, ClearSequence, TrimSequence, ReportReuse, ReportKept,
                            Deliver, EndRequest, FailRequest, ReportDrained>;

// The load that the autoscaler and the router read: without requests in the background, which have
// counts of their own.
struct CoreLoad {
  uint32_t requests_running = 0;
  uint32_t requests_queued = 0;
  uint64_t tokens_queued = 0;  // Prompt tokens not yet computed.
  uint64_t rows_used = 0;      // Excludes rows that free sequences keep.
  uint64_t rows_max = 0;
  uint32_t background_running = 0;
  uint32_t background_queued = 0;
  uint64_t background_rows = 0;
  uint64_t ways_given = 0;  // How often one gave its sequence to another request.
};

// What the engine has done since it started.
struct EngineWork {
  uint64_t tokens = 0;             // Of prompts, and generated ones.
  Duration busy{};                 // In steps.
  uint64_t background_tokens = 0;  // The part of requests in the background: of both.
  Duration background_busy{};
  // Only steps that succeeded, and that computed with the engine's own threads.
  net::StepTotals steps;
  engine::LendingReport lending;  // As of the last step.
  BlockTotals blocks;
};

class WorkerCore {
 public:
  virtual ~WorkerCore() = default;
  virtual void step(const Event& event, Instant now, std::vector<Effect>& effects) = 0;
  // The next time at which TimePassed is needed; kNever if there is none.
  virtual Instant next_wakeup() const = 0;
  virtual CoreLoad load() const = 0;
};

// The facts that a core needs about its engine.
struct EngineSize {
  uint32_t sequences = 1;
  uint32_t rows_per_sequence = 1;
  uint32_t batch_tokens = 1;
};
using CoreFactory = std::function<std::unique_ptr<WorkerCore>(const EngineSize&)>;

}  // namespace pdjob::worker
