// The events that the Router core is told, and the effects that it orders. Values.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "common/core.h"
#include "common/id.h"
#include "common/result.h"
#include "common/time.h"
#include "net/control/message.h"
#include "openai/openai.h"
#include "router/config/router_config.h"
#include "router/core/bypass.h"
#include "router/core/pair_suspicions.h"
#include "router/policies/pair_policy.h"
#include "router/policies/worker_table.h"

namespace pdjob::router {

// One HTTP exchange with one worker for a request. `attempt` identifies late events of an earlier
// attempt.
struct LegId {
  RequestId request;
  uint32_t attempt = 0;
  Stage stage = Stage::kPrefill;
  friend auto operator<=>(const LegId&, const LegId&) = default;
};

inline constexpr Duration kForever = Duration::max();

// The facts about a request that the core needs; the body stays in the shell.
struct RequestFacts {
  std::string model;  // Empty: any; a job with several models requires one.
  // A path of WorkerEntry::routes: one worker that has it serves the request. Implies hands_over =
  // false. Empty: every worker of the model can serve it.
  std::string route;
  // False: one decode worker does all of it. There is no KV (tokenize), or there are several
  // prompts and only one can be handed over.
  bool hands_over = true;
  // There is nothing to decode, so a prefill worker does all of it. Implies hands_over = false.
  bool prompt_only = false;
  uint64_t prompt_tokens = 0;  // Estimates, for load only.
  uint64_t output_tokens = 0;
  std::vector<uint64_t> blocks;  // PromptFacts::blocks and PromptFacts::session.
  uint64_t session = 0;
  uint32_t tenant = 0;  // Tenants of one priority share the queue by weight.
  uint32_t weight = 1;
  uint32_t priority = 0;        // A higher priority is served first.
  bool background = false;      // It takes what the others leave. Its priority is 0.
  Duration timeout = kForever;  // The client's own. The shorter of it and request_timeout counts.
  // Names of workers that must be used; empty: free choice. A pinned request is tried once.
  std::string pin_prefill;
  std::string pin_decode;
  bool probes = false;  // The launcher's: its pins may name workers that are not proved yet.
  bool pinned() const { return !pin_prefill.empty() || !pin_decode.empty(); }
  PromptFacts prompt() const {
    return {.tokens = prompt_tokens, .blocks = blocks, .session = session};
  }
  // Tokens of work for a worker of this stage that has none of the prompt in its cache.
  uint64_t tokens(Stage stage) const {
    return prompt_tokens + (stage == Stage::kDecode ? output_tokens : 0);
  }
};

// --- events
struct RequestArrived {
  RequestId id;
  RequestFacts facts;
};
struct LegAnswered {  // The reply's head has arrived.
  LegId leg;
  int status = 0;
  bool retry_after = false;  // It has Retry-After. With 503, that means "overloaded".
  bool kv_suspect = false;   // Decode leg: KV from this prefill worker was damaged repeatedly.
  bool aborted = false;      // Decode leg: it was asked to end, and may not have fetched the KV.
  bool clients_key = false;  // The client's own key was passed on, not one of the router.
};
struct LegEnded {  // The reply is complete.
  LegId leg;
  bool kv_params = false;  // Prefill leg: its reply held kv_transfer_params.
  std::string kv_address;  // From KvDialect::address_in; empty: none.
};
struct LegFailed {  // There was no connection, or it broke off.
  LegId leg;
  Error error;
  bool resumable = false;  // The stream's tokens are known: another worker can continue.
  bool reached = true;     // There was a connection, so the worker may have the request.
  // Its engine said so before it wrote a token: perhaps the KV did not come.
  bool before_tokens = false;
};
struct ClientLeft {
  RequestId id;
};
struct WorkersChanged {
  std::vector<net::WorkerEntry> workers;  // All of them.
  std::vector<net::Departure> left;       // Why others left, if the launcher knows.
  bool asleep = false;                    // net::Membership::asleep.
  std::vector<net::WorkerEntry> stores;   // All of them.
};
struct LoadChanged {
  std::string name;
  std::string engine_id;
  net::WorkerLoad load;
};
struct WorkerProbed {  // Stand-alone: the result of a health check.
  std::string name;
  bool reachable = false;
  bool silent = false;  // It connects, but has not answered for a while: it gets no new requests.
};
struct NobodyThere {  // Stand-alone: no worker has ever answered. Ends with the first that does.
  std::string why;
};
struct KvTold {  // Events of this worker's engine about its prefix cache.
  WorkerId worker;
  std::vector<openai::KvEvent> events;
  uint32_t rank = 0;  // Of its data-parallel ranks, each of which has a cache of its own.
};
struct KvToldAnew {  // Earlier events are no longer valid.
  WorkerId worker;
  bool complete = false;  // Later events describe the whole cache.
  uint32_t rank = 0;
};
struct PairAccused {  // Answers of the two were wrong where the KV was handed over.
  WorkerId prefill;
  WorkerId decode;
};
struct TokensLearnt {  // LearnTokens has ended.
  std::string model;
  std::string tenant;
  std::vector<uint64_t> blocks;
  size_t prompt_bytes = 0;
  std::vector<uint32_t> tokens;  // Empty: no engine answered.
};
struct AdmissionSet {  // May be repeated.
  bool closed = false;
  net::PauseMode mode = net::PauseMode::kWait;
};
struct LegTakenOff {  // TakeOff has ended this leg; the client has whole tokens only.
  LegId leg;
};
struct ConfigChanged {  // Only take_live_keys() of it counts.
  RouterConfig config;
};
struct AdapterChanged {  // A worker has loaded or unloaded an adapter. Its own list follows.
  WorkerId worker;
  std::string name;
  bool loaded = false;
};
struct DrainRequested {};  // No new requests; Drained follows when the last one has ended.

using RouterEvent = std::variant<RequestArrived, LegAnswered, LegEnded, LegFailed, ClientLeft,
                                 WorkersChanged, LoadChanged, WorkerProbed, NobodyThere, KvTold,
                                 KvToldAnew, PairAccused, TokensLearnt, AdmissionSet, LegTakenOff,
                                 ConfigChanged, AdapterChanged, DrainRequested, TimePassed>;

// --- effects
// The words of a leg's body about the prompt's KV.
enum class KvPart {
  kNone,           // Nothing: this worker does the whole request.
  kOffer,          // Prefill leg: keep the KV under the transfer id.
  kOfferUnnamed,   // Prefill leg of the two-hop: keep the KV and say where it is.
  kFetch,          // Decode leg: the KV is at `peer`, under the transfer id.
  kFetchReturned,  // Decode leg of the two-hop: the KV is where the prefill leg's reply says.
};
struct StartLeg {
  LegId leg;
  WorkerId worker;
  KvPart kv = KvPart::kNone;
  WorkerId peer;  // The prefill worker of a fetch.
  TransferId transfer;
  bool resumes = false;  // The client has the beginning of the stream.
  WorkerId elsewhere;    // A store with more of the prompt than the worker's own.
};
struct CancelLeg {
  LegId leg;
};
struct ReleaseOffer {  // The KV that this worker holds will not be fetched.
  WorkerId worker;
  TransferId transfer;
};
// Pass this leg's reply to the client: the head now, unless the leg resumes a stream, and the rest
// as it arrives.
struct Relay {
  LegId leg;
};
enum class RetryReason { kUnreachable, kFailed, kOverloaded, kWorkerLeft };
const char* to_string(RetryReason reason);
struct LearnTokens {  // Ask an engine for this prompt's tokens when it has time.
  RequestId id;
  WorkerId worker;
  std::vector<uint64_t> blocks;
};
struct PairSuspected {  // For logs and metrics only; so are the next seven.
  WorkerId prefill;
  WorkerId decode;
  PairFault fault = PairFault::kDamaged;
};
struct Retried {
  RequestId id;
  RetryReason reason;
  WorkerId worker;  // The worker at fault.
};
// The retry budget is empty: the client gets a bad answer, though another pair might do better.
struct OutOfRetries {
  RequestId id;
};
struct Hedged {  // A prefill is slow: another pair is tried beside it.
  RequestId id;
  WorkerId worker;  // The slow prefill worker.
};
struct Degraded {  // A decode worker prefills by itself.
  RequestId id;
  bool hand_over_failed = false;  // The prefill worker's reply named no KV.
};
struct Bypassed {  // One worker alone serves it, because a hand-over would not pay.
  RequestId id;
  BypassReason reason = BypassReason::kShort;
};
struct Continued {  // A stream broke off and is to continue elsewhere.
  RequestId id;
  WorkerId worker;  // The worker that broke off.
};
struct Blamed {  // Workers crashed or hung while it ran on them; it is refused or aborted next.
  RequestId id;
  size_t losses = 0;
};
// Ends this leg once the client has whole tokens, with LegTakenOff, while admission is closed. A
// reply that cannot continue elsewhere goes on to its end.
struct TakeOff {
  LegId leg;
};
struct WorkerAvoided {  // For logs: requests go elsewhere for a while, because it answers so.
  WorkerId worker;
  int status = 0;
};
struct AbortRunning {};  // Clients' requests at workers end now, with the tokens that they have.
struct Quiet {};         // Admission is closed, and no worker has a client's request.
// Each request that arrived ends with exactly one of these four.
struct Complete {  // The relayed reply is whole.
  RequestId id;
};
struct Refuse {  // The router's own answer.
  RequestId id;
  openai::ApiError error;
  uint32_t retry_after_seconds = 0;  // 0: not stated.
};
struct Abort {  // The reply broke off after its first byte: the client's connection is cut.
  RequestId id;
};
struct Forget {  // The client left.
  RequestId id;
};
struct Drained {};

using RouterEffect =
    std::variant<StartLeg, CancelLeg, ReleaseOffer, Relay, Retried, Degraded, Complete, Refuse,
                 Abort, Forget, Drained, PairSuspected, Continued, Bypassed, OutOfRetries, Hedged,
                 LearnTokens, Blamed, TakeOff, AbortRunning, Quiet, WorkerAvoided>;

}  // namespace pdjob::router
