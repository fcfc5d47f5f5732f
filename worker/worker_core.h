// The core of an engine worker: which request gets which sequence, and what the engine runs next.
// Prefill and decode workers each have their own (prefill/prefill_worker.h,
// decode/decode_worker.h); this is the seam to the shell that runs either (engine_thread.h).
//
// A core knows a prompt's tokens, to tell which rows of it are there already, and of all others
// their number: samplers and texts stay in the shell, keyed by RequestId. Pure.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "common/generation.h"
#include "common/id.h"
#include "common/result.h"
#include "common/time.h"

namespace pdjob::worker {

// The tokens of a prompt, and whose they are. Tenants share no rows: what took no time to compute
// would tell one of them what another one asked.
struct OwnedPrompt {
  std::vector<Token> tokens;
  std::string tenant;  // Empty: there are no tenants.
};
// Null: not said, so its rows are of no use to another prompt.
using Prompt = std::shared_ptr<const OwnedPrompt>;
inline Prompt make_prompt(std::vector<Token> tokens, std::string tenant = {}) {
  return std::make_shared<const OwnedPrompt>(std::move(tokens), std::move(tenant));
}

// Where the KV of a prompt comes from and goes to.
enum class KvMode {
  kLocal,  // Computed and decoded here.
  kOffer,  // Computed here, decoded elsewhere: rows are offered until somebody fetches them.
  kFetch,  // Computed elsewhere, fetched, decoded here.
};

// --- events

struct RequestArrived {
  RequestId request;
  uint32_t prompt_tokens = 0;  // At least 1.
  uint32_t choices = 1;
  uint32_t max_tokens = 1;  // Of each choice; prompt_tokens + max_tokens may exceed the rows:
                            // generation then ends by length.
  KvMode kv = KvMode::kLocal;
  Instant deadline = kNever;  // To be running by then; passed while queued: kTimeout.
  Prompt prompt = nullptr;    // Of prompt_tokens tokens.
  // Of kOffer:
  bool awaited = false;  // A decode worker has reserved rows and waits for these.
  bool two_hop = false;  // Nobody can wait for them yet: only the reply says where they are.
};
struct RequestCancelled {
  RequestId request;
};
// The engine is idle: run something, if there is anything. Answered by at most one RunStep, whose
// outcome comes before the next EngineFree.
struct EngineFree {};
struct SampledToken {
  RequestId request;
  uint32_t choice = 0;
  bool stopped = false;  // By an end token, a stop token or a stop string.
  uint32_t count = 1;    // More: a continued choice begins with tokens that are known already.
};
struct SampleFailure {  // The sampler refused (broken logits, grammar at a dead end): the request
                        // fails alone.
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
// Answer to SampleTail.
struct TailSampled {
  std::vector<SampledToken> sampled;
  std::vector<SampleFailure> failed;
};
struct RowsFetched {  // Every row is in place; the tail is at hand.
  RequestId request;
};
struct FetchFailed {
  RequestId request;
  Error error;
  bool region_safe = true;  // False: the peer may still write; FetchReleased follows.
};
struct FetchReleased {
  RequestId request;
};
struct OfferAwaited {  // A decode worker began to wait for the rows of this request, or left.
  RequestId request;
  bool awaited = true;
};
struct OfferEnded {  // Fetched, or given up: the rows are nobody's any more.
  RequestId request;
};
struct TimePassed {};  // Looks at deadlines.
struct DrainAsked {};  // Take nothing new; ReportDrained when all is done.

using Event = std::variant<RequestArrived, RequestCancelled, EngineFree, StepFinished, StepFailed,
                           TailSampled, RowsFetched, FetchFailed, FetchReleased, OfferAwaited,
                           OfferEnded, TimePassed, DrainAsked>;

// --- effects, to be done in order

struct BatchItem {
  SequenceId sequence;
  RequestId request;
  uint32_t choice = 0;
  bool prompt = false;  // Tokens [first, first + count) of the prompt, else of what the choice has
                        // generated: its newest one, but where a choice is continued.
  uint32_t first = 0;
  uint32_t count = 1;
  uint32_t samples = 0;  // Choices 0 .. samples-1 are sampled from the last token's logits (a whole
                         // prompt); 1 for a newest token; 0: more of the same follow.
};
struct RunStep {  // Items ordered by sequence.
  std::vector<BatchItem> items;
};
struct AwaitFetch {  // The request queues for rows to fetch into: its offer is to be kept until
                     // StartFetch or EndRequest.
  RequestId request;
};
struct StartFetch {  // Reserve the rows, then fetch into them. A failed reservation comes back as
                     // FetchFailed.
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
struct CommitOffer {  // All rows are final; the tail is the logits of `sequence` in the step that
                      // just finished.
  RequestId request;
  SequenceId sequence;
  uint32_t rows = 0;
};
struct WithdrawOffer {  // OfferEnded follows.
  RequestId request;
};
struct ForkSequence {
  SequenceId from;
  SequenceId to;
};
struct ClearSequence {
  SequenceId sequence;
};
struct TrimSequence {  // Rows [0, rows) stay, all others go.
  SequenceId sequence;
  uint32_t rows = 0;
};
struct ReportReuse {  // The prompt begins with rows that were there: once for each prompt that is
                      // computed here, if prompts are kept at all.
  RequestId request;
  uint32_t prompt_tokens = 0;
  uint32_t rows = 0;
};
// The first rows of a sequence are of the first tokens of this prompt. None: of whatever.
struct PromptRows {
  Prompt prompt;
  uint32_t rows = 0;
};
struct ReportKept {  // What a free sequence keeps, for prompts that begin alike. None: it is taken,
                     // or nothing is left in it.
  SequenceId sequence;
  PromptRows kept;
};
struct Deliver {  // The choice's newest token goes to the client, with the reason if it was the
                  // last.
  RequestId request;
  uint32_t choice = 0;
  FinishReason finish = FinishReason::kNone;
};
struct EndRequest {  // Every choice is delivered, or the client knows; the shell forgets what it
                     // kept of it.
  RequestId request;
};
struct FailRequest {  // The client gets the error; EndRequest follows at once or when nothing is in
                      // flight any more.
  RequestId request;
  Error error;
};
struct ReportDrained {};  // Once in a core's life.

using Effect =
    std::variant<RunStep, AwaitFetch, StartFetch, CancelFetch, SampleTail, StartOffer, OfferRows,
                 CommitOffer, WithdrawOffer, ForkSequence, ClearSequence, TrimSequence, ReportReuse,
                 ReportKept, Deliver, EndRequest, FailRequest, ReportDrained>;

// What the autoscaler and the router want to know.
struct CoreLoad {
  uint32_t requests_running = 0;
  uint32_t requests_queued = 0;
  uint64_t tokens_queued = 0;  // Prompt tokens not yet computed.
  uint64_t rows_used = 0;      // Without those that free sequences keep.
  uint64_t rows_max = 0;
};

class WorkerCore {
 public:
  virtual ~WorkerCore() = default;
  virtual void step(const Event& event, Instant now, std::vector<Effect>& effects) = 0;
  // When TimePassed has something to do; kNever: never.
  virtual Instant next_deadline() const = 0;
  virtual CoreLoad load() const = 0;
};

// What a core must know of its engine.
struct EngineSize {
  uint32_t sequences = 1;
  uint32_t rows_per_sequence = 1;
  uint32_t batch_tokens = 1;
};
using CoreFactory = std::function<std::unique_ptr<WorkerCore>(const EngineSize&)>;

}  // namespace pdjob::worker
