// Router: the core. It pairs every request with a prefill and a decode worker, and answers it
// exactly once. It retries on another pair until the first byte of a reply is on its way to the
// client. It sees heads, ends and failures of legs, never bytes.
//
//               no usable pair with room                a leg fails, is overloaded, or loses its
//               worker:
//                  |     ^                              another pair, at most `attempts` times
//                  v     |                            +------------------------------------------+
//   arrived --> [queued] ------+                      v                                          |
//      |           |           |---> [concurrent]  both legs, one transfer id  ---- fails -------+
//      |           |           |---> [prefilling]  two-hop: prefill leg first  ---- fails -------+
//      v           v           |          | its reply names the KV                               |
//   refused     refused        |          v                                                      |
//                              +---> [decoding]    decode leg alone            ---- fails -------+
//
//   concurrent -- the prefill leg is slow --> a second attempt beside it; the first one to answer
//                                   serves the request, the other one is cancelled
//   concurrent -- the prefill leg's reply names another address than the decode leg was told -->
//                                   a new decode leg: decoding
//   concurrent, decoding -- the decode leg answers, or any leg says that the request is bad
//                                   --> [relaying]; verdict.h tells what answers mean
//   relaying -- reply complete --> done, or [answered] until a prefill leg still running has ended
//   relaying -- upstream dies  --> [queued], to continue elsewhere, if its tokens are known;
//                                  otherwise aborted: a failed generation is never a clean 200
//   any state -- client leaves --> legs cancelled, forgotten
//
// A request that kills workers must not be retried forever. If a launcher reports why workers were
// lost (RouterConfig::hears_losses), each request notes the workers that it lost, in either leg.
// Only two causes count: a hang, and a crash that broke the request's connection. The second such
// loss ends the request with 422 (`request_kills_workers`), or cuts its stream. Two workers that a
// hedged request lost at once are one loss: it may have had the same neighbour at both. The
// launcher's report comes later than the end of a connection. The router waits for it only before a
// third worker gets the request, or before the last attempt ends with 503, which asks for more.
//
// - After the first loss, the router retries at once.
// - After the second, it waits for the report, at most kLossWordWait.
// - It drops a loss "from outside" (a SIGKILL, a lost node).
//
// All requests that ran on a lost worker have the same loss. So a request with a loss is a
// *suspect* and is tried alone. For at most kSuspectWaitMax, it avoids workers that stand still or
// have another suspect. A suspect passes its trial on a worker when its leg ends, or kSuspectTrial
// after its answer. If the worker is lost while another suspect is on trial there, the loss does
// not count for one that has passed. Nobody is charged while another request was at all the same
// lost workers: from then on, they are apart. Requests without a loss avoid workers that stand
// still or have a suspect, while others are left.
//
// Admission may be closed, while weights change. Clients' requests then wait in the queue, without
// queue_timeout, and those that run end by net::PauseMode: they finish, are aborted by their
// workers, or leave them (*retract*). A stream that leaves continues later, as if its worker had
// died; a request without a reply starts anew. Probes go on.
//
// Pure.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "common/id.h"
#include "common/limits.h"
#include "common/random.h"
#include "common/result.h"
#include "common/time.h"
#include "net/control/message.h"
#include "openai/openai.h"
#include "router/admission/fair_shares.h"
#include "router/config/router_config.h"
#include "router/core/bypass.h"
#include "router/core/pair_suspicions.h"
#include "router/core/prefill_pace.h"
#include "router/core/retry_budget.h"
#include "router/core/verdict.h"
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
};
struct ClientLeft {
  RequestId id;
};
struct WorkersChanged {
  std::vector<net::WorkerEntry> workers;  // All of them.
  std::vector<net::Departure> left;       // Why others left, if the launcher knows.
  bool asleep = false;                    // net::Membership::asleep.
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
};
struct KvToldAnew {  // Earlier events are no longer valid.
  WorkerId worker;
  bool complete = false;  // Later events describe the whole cache.
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
struct DrainRequested {};  // No new requests; Drained follows when the last one has ended.
struct TimePassed {};      // Due at next_wakeup().

using RouterEvent =
    std::variant<RequestArrived, LegAnswered, LegEnded, LegFailed, ClientLeft, WorkersChanged,
                 LoadChanged, WorkerProbed, NobodyThere, KvTold, KvToldAnew, TokensLearnt,
                 AdmissionSet, LegTakenOff, DrainRequested, TimePassed>;

// --- effects
// What a leg's body says about the prompt's KV.
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
  bool resumes = false;  // Decode leg: the client has the beginning of the stream.
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

class Router {
 public:
  // A prefill leg may outlive the reply to the client by this much, so that its connection can be
  // reused.
  static constexpr Duration kLingerMax = std::chrono::seconds(5);

  // `seed`: for random decisions. `id_bits`: for transfer ids, which must be unguessable.
  Router(const RouterConfig& config, Policies policies, uint64_t seed, BitSource id_bits);
  // For tests: uses built-in policies, and the seed for ids, too.
  Router(const RouterConfig& config, uint64_t seed);

  void step(const RouterEvent& event, Instant now, std::vector<RouterEffect>& effects);
  // When TimePassed is due; kNever if nothing waits.
  Instant next_wakeup() const;

  const WorkerTable& workers() const { return table_; }
  // True if a policy reads RequestFacts::blocks.
  bool wants_blocks() const {
    return policies_.prefill->wants_blocks() || policies_.decode->wants_blocks();
  }
  // The engines' reports of their prefix caches; null: no engine is followed.
  const KvKnowledge* kv() const { return policies_.kv.get(); }
  const PairSuspicions& suspicions() const { return suspicions_; }
  // True if a request could be sent now.
  bool usable() const { return usable(""); }
  // True if a request that comes now could be sent, or waits for workers that it starts.
  bool serves(Instant now) const;
  // True if the model exists, but no worker serves it now.
  bool would_wait(const std::string& model) const {
    return !refusal_of_model(model) && !usable(model);
  }
  // Why no request of this model can ever be served; empty: it can be.
  std::optional<openai::ApiError> refusal_of_model(const std::string& model) const;
  // The job's models, and those that workers report.
  std::set<std::string> models() const;
  // WorkerEntry::weight_version of the workers: in a job that updates its weights, the same one of
  // all. "default": nobody has told one. Valid until the next step.
  std::string_view weight_version() const;
  size_t requests_alive() const { return requests_.size(); }
  size_t requests_queued() const;
  uint32_t queue_max() const { return config_.queue_max; }
  // Clients' requests that workers may have.
  size_t requests_running() const;
  bool closed() const { return closed_; }
  // True if streams leave their workers as soon as they can.
  bool retracts() const { return closed_ && pause_mode_ == net::PauseMode::kRetract; }

 private:
  enum class State { kQueued, kConcurrent, kPrefilling, kDecoding, kRelaying, kAnswered };
  struct Leg {
    WorkerId worker;
    uint64_t cached_tokens = 0;  // Chosen::cached_tokens.
    uint64_t tokens = 0;
    uint64_t prompt = 0;        // Counted in Worker::prompts_in_flight.
    uint64_t work = 0;          // Tokens until it is done, including those of requests before it.
    Stage as = Stage::kDecode;  // The policy of this stage chose its worker.
    bool running = false;
    bool fetches = false;     // A decode leg that was told where the KV is.
    bool promised = false;    // Counted in Worker::promised.
    bool on_trial = false;    // A suspect's, and counted in Worker::suspects.
    bool as_suspect = false;  // It began as one.
    Instant begun{};          // Start of its work (a decode leg: its answer); zero: not measured.
  };
  // A worker that answered badly, perhaps because of the request itself.
  struct Accused {
    WorkerId worker;
    int status = 0;
  };
  // One attempt on one pair.
  struct Attempt {
    uint32_t number = 0;
    Leg prefill;
    Leg decode;
    TransferId transfer;
    bool offered = false;        // Under `transfer`, until the KV is fetched or released.
    std::string learnt_address;  // Where its decode leg fetches the KV, as learnt from replies.
  };
  // A worker that was lost while the request ran on it.
  struct Loss {
    WorkerId worker;
    Instant noted{};
    net::LossCause cause = net::LossCause::kUnknown;
    bool on_trial = false;    // The request was on trial there.
    bool as_suspect = false;  // It was a suspect when it came there.
    bool killed() const { return cause >= net::LossCause::kCrash; }
    // True while the launcher may still report the cause.
    bool open(Instant now) const {
      return cause == net::LossCause::kUnknown && now < noted + limits::kLossWordWait;
    }
  };
  // A worker whose connections broke, or that left.
  struct LostWorker {
    std::string engine_id;
    net::LossCause cause = net::LossCause::kUnknown;
    bool had_suspect = false;  // A suspect was on trial there.
    // Requests that lost it; they may have ended since. The first limits::kLostWorkerRequestsMax.
    std::vector<RequestId> had = {};
  };
  // The order in which queued requests are served.
  struct QueuePlace {
    uint32_t below = 0;   // UINT32_MAX - priority.
    uint64_t begins = 0;  // FairShares.
    uint64_t arrival = 0;
    friend auto operator<=>(const QueuePlace&, const QueuePlace&) = default;
  };
  struct Request {
    RequestId id;
    RequestFacts facts;
    QueuePlace queue_place;
    State state = State::kQueued;
    // In kQueued: there are workers, but all are busy. Later: when its workers were chosen, others
    // were busy.
    bool wants_room = false;
    Instant deadline{};
    Instant queue_deadline{};
    Instant wake{};  // This request's entry in wakes_.
    Attempt attempt;
    std::optional<Attempt> rival;  // In kConcurrent: a second attempt; the two are equal.
    uint32_t attempts_made = 0;
    uint32_t tries = 0;               // Attempts that count, since a reply last began.
    uint32_t continued = 0;           // Times that its stream broke off.
    bool begun = false;               // The client has the head of the reply.
    Stage relayed = Stage::kDecode;   // In kRelaying: the stage whose reply is relayed.
    bool wants_pair = false;          // No prefill worker serves it alone.
    bool prefill_overloaded = false;  // Decode workers then do not prefill instead.
    std::vector<WorkerId> failed;     // Not tried again while others are left.
    std::vector<Accused> accused;
    std::string last_failure;       // For the client, if no further attempt succeeds.
    std::vector<Loss> losses;       // Without those from outside.
    bool hand_over_failed = false;  // Waits for how its prefill leg ends, for a moment.
    Instant alone_until{};          // Until then, a queued suspect waits for a worker of its own.
  };
  struct Pick {
    std::optional<Chosen> worker;
    bool full = false;  // A worker was not a candidate, because it has no room.
  };
  struct Choice {
    Chosen decode;
    std::optional<Chosen> prefill;
    bool degraded = false;
    std::optional<BypassReason> bypass = {};
    // A prefill worker is in the place of the decode worker.
    bool by_prefill() const {
      return bypass == BypassReason::kBusy || bypass == BypassReason::kPromptOnly;
    }
  };
  struct Turn {
    Instant now;
    std::vector<RouterEffect>& effects;
  };

  void on(const RequestArrived& event, Turn& turn);
  void on(const LegAnswered& event, Turn& turn);
  void on(const LegEnded& event, Turn& turn);
  void on(const LegFailed& event, Turn& turn);
  void on(const ClientLeft& event, Turn& turn);
  void on(const WorkersChanged& event, Turn& turn);
  void on(const LoadChanged& event, Turn& turn);
  void on(const WorkerProbed& event, Turn& turn);
  void on(const NobodyThere& event, Turn& turn);
  void on(const KvTold& event, Turn& turn);
  void on(const KvToldAnew& event, Turn& turn);
  void on(const TokensLearnt& event, Turn& turn);
  void on(const AdmissionSet& event, Turn& turn);
  void on(const LegTakenOff& event, Turn& turn);
  void on(const DrainRequested& event, Turn& turn);
  void on(const TimePassed& event, Turn& turn);

  std::optional<openai::ApiError> refusal_of(const RequestFacts& facts) const;
  bool usable(std::string_view model) const;
  bool pins_fit(const RequestFacts& facts) const;
  // `decode`: for a prefill worker, its future partner.
  Pick pick(Stage stage, const Request& request, const std::string& model,
            std::optional<WorkerId> decode, Instant now);
  void keep_near(WorkerId decode, uint64_t tokens, std::vector<Candidate>& candidates) const;
  bool is_avoided(Stage stage, const Worker& worker, const Request& request,
                  std::optional<WorkerId> decode, Instant now) const;
  std::optional<Choice> choose(Request& request, Instant now);
  // A prefill worker that serves the request alone, because `decode` is busy. Null: all are.
  std::optional<Chosen> spare_prefill(const Request& request, const std::string& model,
                                      const Worker* decode, Instant now);

  void place(Request& request, Turn& turn);
  // Places waiting requests in queue order. For each model, it stops once `failures_max` requests
  // found no worker.
  void place_queued(size_t failures_max, Turn& turn);
  void enqueue(Request& request, Turn& turn);
  // Makes room in the queue for one more request: refuses the last request of the model with the
  // longest queue. So a model without workers cannot keep others out. Returns false if the request
  // itself would be served last.
  bool make_room_for(const Request& request, Turn& turn);
  void send(Request& request, const Choice& choice, Turn& turn);
  void send_second_hop(Request& request, bool kv_params, Turn& turn);
  // Requires: the leg has ended well.
  void note_pace(const Leg& leg, Stage stage, Instant now);
  void on_prefilled(Request& request, const LegEnded& event, Turn& turn);
  void start_leg(Request& request, Stage stage, StartLeg effect, Turn& turn);
  void end_leg(Request& request, Stage stage);
  void end_prompt(Leg& leg);
  void cancel_leg(Request& request, Stage stage, Turn& turn);
  void cancel_legs(Request& request, Turn& turn);
  void drop_prefill(Request& request, Turn& turn);

  // The prefill of this attempt is slow: starts an attempt on another pair beside it. The first to
  // answer serves the request (Dean and Barroso, The Tail at Scale, 2013).
  void hedge(Request& request, Turn& turn);
  // When to hedge; empty: never.
  std::optional<Duration> slow_after(const Request& request);
  void drop_rival(Request& request, Turn& turn);
  // This attempt has failed; its rival takes over. Returns false if there is no rival.
  bool leave_to_rival(Request& request, Turn& turn);

  // Answers of workers: router_answers.cc.
  void judge(Request& request, WorkerId worker, const LegAnswered& answer, Verdict verdict,
             Turn& turn);
  void convict(Request& request, Turn& turn);
  void relay(Request& request, Stage stage, Turn& turn);
  void serve_by_pair(Request& request, Turn& turn);
  void relay_refusal(Request& request, Stage stage, Turn& turn);
  static bool is_ambiguous(const Request& request, Stage stage, Verdict verdict);
  void avoid_for_request(Request& request, const LegAnswered& answer, Verdict verdict);
  void answer_badly(Request& request, const LegAnswered& answer, Verdict verdict, Turn& turn);
  void end_badly(Request& request, const LegAnswered& answer, Verdict verdict, Turn& turn);
  void retry(Request& request, RetryReason reason, WorkerId worker, const std::string& why,
             Turn& turn);
  // The stream broke off: continues it on another pair, now or when there is one.
  void continue_elsewhere(Request& request, WorkerId worker, Turn& turn);
  void wake(Request& request, Turn& turn);

  // Pauses: router_pause.cc.
  bool waits_for_admission(const Request& request) const {
    return closed_ && !request.facts.probes;
  }
  void open_admission(Turn& turn);
  void retract(Request& request, Turn& turn);
  void look_if_quiet(Turn& turn);

  // Requests that kill workers: router_blame.cc.
  void note_loss(Request& request, const Leg& leg, Instant now);
  void note_losses(Request& request, const std::vector<WorkerId>& gone, Instant now);
  void take_departures(const WorkersChanged& event, const std::vector<WorkerId>& gone, Turn& turn);
  void settle_losses(Request& request, Instant now);
  static bool is_suspect(const Request& request, Instant now);
  // True if the second loss is noted, and the cause of one of them is still open.
  static bool awaits_word(const Request& request, Instant now);
  // When a queued suspect's state changes with time alone; kNever: it does not.
  static Instant suspect_wakes(const Request& request, Instant now);
  template <class Counts>
  static size_t count_losses(const Request& request, const Counts& counts);
  bool is_guilty(const Request& request) const;
  void excuse_company(Request& request);
  void convict_killer(Request& request, Turn& turn);
  void keep_promise(Leg& leg);
  void begin_trial(Leg& leg);
  void end_trial(Leg& leg);

  void refuse(Request& request, const Error& error, Turn& turn);
  void complete(Request& request, Turn& turn);
  void abort(Request& request, Turn& turn);
  void erase(Request& request);

  Request* next_queued(const std::string& model, const QueuePlace& after);
  void leave_queue(const Request& request);
  void set_wake(Request& request, Instant when);
  Request* find(RequestId id);
  Request* find_running(const LegId& leg);
  static Leg& leg_of(Request& request, Stage stage) {
    return stage == Stage::kPrefill ? request.attempt.prefill : request.attempt.decode;
  }
  PrefillPace& pace_of(WorkerId prefill);
  PairPolicy& policy_of(Stage stage) {
    return stage == Stage::kPrefill ? *policies_.prefill : *policies_.decode;
  }
  bool may_try_again(const Request& request) const {
    return request.tries < (request.facts.pinned() ? 1 : config_.attempts);
  }

  const RouterConfig config_;
  Random random_;
  const BitSource id_bits_;
  const Policies policies_;
  WorkerTable table_;
  PairSuspicions suspicions_;
  RetryBudget retries_;
  // By model, so a large model does not count as slow.
  std::map<std::string, PrefillPace> prefill_paces_;
  std::map<RequestId, Request> requests_;
  std::map<WorkerId, LostWorker> lost_;  // The newest limits::kLostWorkersMax.
  // Requests in kQueued, by model: a model with busy workers delays no other.
  std::map<std::string, std::map<QueuePlace, RequestId>> queues_;
  FairShares shares_;
  uint64_t arrivals_ = 0;
  bool room_made_ = false;                         // A worker got room in this turn.
  std::set<std::pair<Instant, RequestId>> wakes_;  // One per request.
  bool draining_ = false;
  bool closed_ = false;
  bool quiet_told_ = false;  // Since admission closed.
  net::PauseMode pause_mode_ = net::PauseMode::kWait;
  bool asleep_ = false;       // The next request starts the workers.
  Instant wakes_until_{};     // Until then, workers that a request started are expected.
  std::string nobody_there_;  // Why no request can be served yet; empty: a worker has answered.
};

}  // namespace pdjob::router
