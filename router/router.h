// Router: the core. It pairs every request with a prefill and a decode worker, retries on another
// pair until the first byte of a reply is on its way to the client, and answers each request
// exactly once. It sees heads, ends and failures of legs, never bytes.
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
//   concurrent -- the prefill leg is slow --> a second attempt beside it; the first to answer is
//   the request's, the other one is cancelled
//   concurrent -- the prefill leg's reply names another address than the decode leg was told -->
//   decoding, anew
//   concurrent, decoding -- the decode leg answers, or any leg says 4xx --> [relaying]
//   relaying -- reply complete --> done, or [answered] until a prefill leg still running has ended
//   relaying -- upstream dies  --> [queued], to go on elsewhere, if its tokens are known; else
//                                  aborted: a failed generation is never a clean 200
//   any state -- client leaves --> legs cancelled, forgotten
//
// A request that kills workers must not be given on for ever. Where a launcher tells why workers
// were lost (RouterConfig::hears_losses), each request notes the workers that it lost, in either
// leg. Only a crash that broke its connection and a hang count. The second one ends the request
// with 422 (`request_kills_workers`), or cuts its stream. The launcher's word comes later than the
// end of a connection, so the router waits for it only before a third worker gets the request:
//
//   - After the first loss the request is tried again at once.
//   - After the second it waits for the word, at most kLossWordWait.
//   - A loss "from outside" (a SIGKILL, a lost node) is forgotten.
//
// Whoever ran beside it has the same loss, so that a request with a loss is a *suspect* and is
// tried alone: no two suspects are sent to one worker, and none to a worker that stands still, for
// at most kSuspectWaitMax. A suspect passes its trial on a worker when its leg ends, or
// kSuspectTrial after its answer. Who has passed is not counted the loss of a worker on which
// another suspect was tried. Requests without a loss avoid such workers while others are left.
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
#include "net/message.h"
#include "net/openai.h"
#include "router/fair_shares.h"
#include "router/pair_policy.h"
#include "router/pair_suspicions.h"
#include "router/prefill_pace.h"
#include "router/retry_budget.h"
#include "router/router_config.h"
#include "router/worker_table.h"

namespace pdjob::router {

// One HTTP exchange with one worker on behalf of a request. `attempt` makes what is late of an
// earlier attempt recognisable.
struct LegId {
  RequestId request;
  uint32_t attempt = 0;
  Stage stage = Stage::kPrefill;
  friend auto operator<=>(const LegId&, const LegId&) = default;
};

inline constexpr Duration kForever = Duration::max();

// What the core must know of a request; its body stays in the shell.
struct RequestFacts {
  std::string model;           // Empty: any; a job of several wants one named.
  bool hands_over = true;      // False: there is no KV (tokenize), or that of several prompts where
                               // one is all that can be handed over: one decode worker does it.
  uint64_t prompt_tokens = 0;  // Estimates, for load only.
  uint64_t output_tokens = 0;
  std::vector<uint64_t> blocks;  // Prompt::blocks and Prompt::session.
  uint64_t session = 0;
  uint32_t tenant = 0;  // Who asks: tenants share the queue by weight, within one priority.
  uint32_t weight = 1;
  uint32_t priority = 0;        // Higher ones are served first.
  Duration timeout = kForever;  // The client's own; the shorter of it and request_timeout counts.
  std::string pin_prefill;      // Names of workers that must be used; empty: free choice. A pinned
                                // request is tried once.
  std::string pin_decode;
  bool pinned() const { return !pin_prefill.empty() || !pin_decode.empty(); }
  Prompt prompt() const { return {.tokens = prompt_tokens, .blocks = blocks, .session = session}; }
  // Work for a worker of this stage that has nothing of it yet.
  uint64_t tokens(Stage stage) const {
    return prompt_tokens + (stage == Stage::kDecode ? output_tokens : 0);
  }
};

// --- events
struct RequestArrived {
  RequestId id;
  RequestFacts facts;
};
struct LegAnswered {  // The reply's head is here.
  LegId leg;
  int status = 0;
  bool retry_after = false;  // It carries Retry-After: with 503, the word for "overloaded".
  bool kv_suspect = false;   // Decode leg: KV of this prefill worker comes damaged again and again.
};
struct LegEnded {  // The reply is complete.
  LegId leg;
  bool kv_params = false;  // Prefill leg: its reply held kv_transfer_params.
  std::string kv_address;  // And in them, what holds for all requests: KvDialect::address_in.
};
struct LegFailed {  // No connection, or it broke off.
  LegId leg;
  Error error;
  bool resumable = false;  // Of what is relayed: its tokens are known, another worker can go on.
  bool reached = true;     // The worker may have had it: there was a connection.
};
struct ClientLeft {
  RequestId id;
};
struct WorkersChanged {
  std::vector<net::WorkerEntry> workers;  // All of them.
  std::vector<net::Departure> left;       // Why others are not there, as far as the launcher knows.
};
struct LoadChanged {
  std::string name;
  std::string engine_id;
  net::WorkerLoad load;
};
struct WorkerProbed {  // Stand-alone: the worker was asked how it is.
  std::string name;
  bool reachable = false;
  bool silent = false;  // There, but without an answer for a while: nothing new goes there.
};
struct KvTold {  // By the engine of this worker, of its prefix cache.
  WorkerId worker;
  std::vector<net::KvEvent> events;
};
struct KvToldAnew {  // What it told before holds no longer.
  WorkerId worker;
  bool complete = false;  // What it tells from now on is all.
};
struct TokensLearnt {  // LearnTokens has come to an end.
  std::string model;
  std::string tenant;
  std::vector<uint64_t> blocks;
  size_t prompt_bytes = 0;
  std::vector<uint32_t> tokens;  // None: nobody said.
};
struct DrainRequested {};  // No new requests; Drained follows when the last one has ended.
struct TimePassed {};      // Due at next_wakeup().

using RouterEvent = std::variant<RequestArrived, LegAnswered, LegEnded, LegFailed, ClientLeft,
                                 WorkersChanged, LoadChanged, WorkerProbed, KvTold, KvToldAnew,
                                 TokensLearnt, DrainRequested, TimePassed>;

// --- effects
// What a leg's body says about the KV cache of the prompt.
enum class KvPart {
  kNone,           // Nothing: this worker does all of the request.
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
struct Relay {  // Pass this leg's reply on to the client: its head now, but where it resumes, and
                // the rest as it comes.
  LegId leg;
};
enum class RetryReason { kUnreachable, kFailed, kOverloaded, kWorkerLeft };
const char* to_string(RetryReason reason);
struct LearnTokens {  // An engine is to be asked, when it has time, which tokens this prompt has.
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
  WorkerId worker;  // Whose fault it was.
};
struct OutOfRetries {  // A bad answer is passed on, though another pair might do better.
  RequestId id;
};
struct Hedged {  // A prefill is slow: another pair is tried beside it.
  RequestId id;
  WorkerId worker;  // Whose it is.
};
struct Degraded {  // A decode worker prefills by itself.
  RequestId id;
};
struct Bypassed {  // The same, because there is too little to prefill for a hand-over to pay.
  RequestId id;
};
struct Continued {  // A stream broke off and is to go on elsewhere.
  RequestId id;
  WorkerId worker;  // Who was to finish it.
};
struct Blamed {  // Workers crashed or hung while it ran on them; it is refused or aborted next.
  RequestId id;
  size_t losses = 0;
};
// Each request that arrived ends by exactly one of these four.
struct Complete {  // The relayed reply is whole.
  RequestId id;
};
struct Refuse {  // The router's own answer.
  RequestId id;
  net::ApiError error;
  uint32_t retry_after_seconds = 0;  // 0: not said.
};
struct Abort {  // The reply broke off after its first byte: the client's connection is cut.
  RequestId id;
};
struct Forget {  // The client left.
  RequestId id;
};
struct Drained {};

using RouterEffect = std::variant<StartLeg, CancelLeg, ReleaseOffer, Relay, Retried, Degraded,
                                  Complete, Refuse, Abort, Forget, Drained, PairSuspected,
                                  Continued, Bypassed, OutOfRetries, Hedged, LearnTokens, Blamed>;

class Router {
 public:
  // A prefill leg may outlive the reply to the client by this much, so that its connection can be
  // used again.
  static constexpr Duration kLingerMax = std::chrono::seconds(5);

  // `seed`: of decisions. `id_bits`: of transfer ids, which nobody must be able to guess.
  Router(const RouterConfig& config, Policies policies, uint64_t seed, BitSource id_bits);
  // With built-in policies, and ids of the seed: for tests.
  Router(const RouterConfig& config, uint64_t seed);

  void step(const RouterEvent& event, Instant now, std::vector<RouterEffect>& effects);
  // When TimePassed is due; kNever if nothing waits.
  Instant next_wakeup() const;

  const WorkerTable& workers() const { return table_; }
  // A policy looks at RequestFacts::blocks.
  bool wants_blocks() const {
    return policies_.prefill->wants_blocks() || policies_.decode->wants_blocks();
  }
  // What engines say of their prefix caches; null: none is asked.
  const KvKnowledge* kv() const { return policies_.kv.get(); }
  const PairSuspicions& suspicions() const { return suspicions_; }
  // Could a request be sent now?
  bool usable() const { return usable(""); }
  // There is such a model, but nobody who serves it now.
  bool would_wait(const std::string& model) const {
    return !refusal_of_model(model) && !usable(model);
  }
  // Those of the job, and those that workers say they serve.
  std::set<std::string> models() const;
  size_t requests_alive() const { return requests_.size(); }
  size_t requests_queued() const;

 private:
  enum class State { kQueued, kConcurrent, kPrefilling, kDecoding, kRelaying, kAnswered };
  struct Leg {
    WorkerId worker;
    uint64_t cached_tokens = 0;  // Chosen::cached_tokens.
    uint64_t tokens = 0;
    uint64_t work = 0;  // Tokens until it is done, those of others before it among them.
    bool running = false;
    bool on_trial = false;  // It is a suspect's, and counted in Worker::suspects.
    Instant begun{};  // Its work, which a decode leg begins with its answer; zero: not to be told.
  };
  // One try at one pair.
  struct Attempt {
    uint32_t number = 0;
    Leg prefill;
    Leg decode;
    TransferId transfer;
    bool offered = false;        // Under that, until the KV is fetched or given up.
    std::string learnt_address;  // Where its decode leg looks for the KV, as learnt from replies.
  };
  // A worker that was lost while the request ran on it.
  struct Loss {
    WorkerId worker;
    Instant noted{};
    net::LossCause cause = net::LossCause::kUnknown;
    bool on_trial = false;  // The request was, there.
    bool killed() const { return cause >= net::LossCause::kCrash; }
    // The word may still come.
    bool open(Instant now) const {
      return cause == net::LossCause::kUnknown && now < noted + limits::kLossWordWait;
    }
  };
  // A worker of which connections broke, or that left.
  struct LostWorker {
    std::string engine_id;
    net::LossCause cause = net::LossCause::kUnknown;
    bool had_suspect = false;  // One was tried there.
  };
  // Who waits is served in this order.
  struct QueuePlace {
    uint32_t below = 0;   // The highest priority.
    uint64_t begins = 0;  // FairShares.
    uint64_t arrival = 0;
    friend auto operator<=>(const QueuePlace&, const QueuePlace&) = default;
  };
  struct Request {
    RequestId id;
    RequestFacts facts;
    QueuePlace queue_place;
    State state = State::kQueued;
    bool wants_room = false;  // In kQueued: workers are there, and busy.
    Instant deadline{};
    Instant queue_deadline{};
    Instant wake{};  // This request's entry in wakes_.
    Attempt attempt;
    std::optional<Attempt> rival;  // In kConcurrent: runs beside it. Which is which says nothing.
    uint32_t attempts_made = 0;
    uint32_t tries = 0;              // Attempts since the client last got something.
    uint32_t continued = 0;          // Times that its stream broke off.
    bool begun = false;              // The client has the head of the reply.
    Stage relayed = Stage::kDecode;  // In kRelaying: whose reply it is.
    bool prefill_overloaded =
        false;  // An overloaded prefill worker is no reason to load decode workers with prefill.
    std::vector<WorkerId> failed;   // Not tried again while somebody else is left.
    std::vector<WorkerId> accused;  // Answered 5xx, which the request itself may be to blame for.
    std::string last_failure;       // For the client, if no further attempt succeeds.
    std::vector<Loss> losses;       // But for those that came from outside.
    Instant alone_until{};          // A queued suspect waits for a worker of its own until then.
  };
  struct Pick {
    std::optional<Chosen> worker;
    bool full = false;  // None, because those that are there have no room.
  };
  struct Choice {
    Chosen decode;
    std::optional<Chosen> prefill;
    bool degraded = false;
    bool bypass = false;
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
  void on(const KvTold& event, Turn& turn);
  void on(const KvToldAnew& event, Turn& turn);
  void on(const TokensLearnt& event, Turn& turn);
  void on(const DrainRequested& event, Turn& turn);
  void on(const TimePassed& event, Turn& turn);

  std::optional<net::ApiError> refusal_of(const RequestFacts& facts) const;
  bool usable(std::string_view model) const;
  std::optional<net::ApiError> refusal_of_model(const std::string& model) const;
  bool pins_fit(const RequestFacts& facts) const;
  // `decode`: of a prefill worker, whose partner it would be.
  Pick pick(Stage stage, const Request& request, const std::string& model,
            std::optional<WorkerId> decode, Instant now);
  void keep_near(WorkerId decode, uint64_t tokens, std::vector<Candidate>& candidates) const;
  bool is_avoided(Stage stage, const Worker& worker, const Request& request,
                  std::optional<WorkerId> decode, Instant now) const;
  std::optional<Choice> choose(Request& request, Instant now);

  void place(Request& request, Turn& turn);
  // Tries those that wait, in order of arrival; of each model until `failures_max` have found
  // nobody.
  void place_queued(size_t failures_max, Turn& turn);
  void enqueue(Request& request, Turn& turn);
  // Makes room in the queue for one more, in that of the model for which most wait: a model whose
  // workers are gone must not keep the others out. False: the request itself would be served last.
  bool make_room_for(const Request& request, Turn& turn);
  void send(Request& request, const Choice& choice, Turn& turn);
  void send_second_hop(Request& request, bool kv_params, Turn& turn);
  // Its leg has ended well.
  void note_pace(const Leg& leg, Stage stage, Instant now);
  void on_prefilled(Request& request, const LegEnded& event, Turn& turn);
  void start_leg(Request& request, Stage stage, StartLeg effect, Turn& turn);
  void end_leg(Request& request, Stage stage);
  void cancel_leg(Request& request, Stage stage, Turn& turn);
  void cancel_legs(Request& request, Turn& turn);
  void drop_prefill(Request& request, Turn& turn);

  // The prefill of this attempt is slow: tries another pair beside it, and whichever answers first
  // serves the request (Dean and Barroso, The Tail at Scale, 2013).
  void hedge(Request& request, Turn& turn);
  // When to; none: never.
  std::optional<Duration> slow_after(const Request& request);
  void drop_rival(Request& request, Turn& turn);
  // This attempt has come to nothing, and another one goes on. False: there is none.
  bool leave_to_rival(Request& request, Turn& turn);

  // The request was answered well by somebody: those who could not are at fault.
  void convict(Request& request, Turn& turn);
  void relay(Request& request, Stage stage, Turn& turn);
  void relay_refusal(Request& request, Stage stage, Turn& turn);
  void answer_badly(Request& request, const LegAnswered& answer, Turn& turn);
  void retry(Request& request, RetryReason reason, WorkerId worker, const std::string& why,
             Turn& turn);
  // The stream broke off. Goes on at another pair, now or when there is one.
  void continue_elsewhere(Request& request, WorkerId worker, Turn& turn);
  void wake(Request& request, Turn& turn);

  // Who kills workers: router_blame.cc.
  void note_loss(Request& request, const Leg& leg, Instant now);
  void note_losses(Request& request, const std::vector<WorkerId>& gone, Instant now);
  void take_departures(const WorkersChanged& event, const std::vector<WorkerId>& gone, Turn& turn);
  void settle_losses(Request& request, Instant now);
  static bool is_suspect(const Request& request, Instant now);
  // The second loss is there, and the word about one of them is not.
  static bool awaits_word(const Request& request, Instant now);
  // When something changes for a queued suspect by itself; kNever: nothing does.
  static Instant suspect_wakes(const Request& request, Instant now);
  bool is_guilty(const Request& request) const;
  void convict_killer(Request& request, Turn& turn);
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
  std::map<std::string, PrefillPace> prefill_paces_;  // By model: a large one is not slow.
  std::map<RequestId, Request> requests_;
  std::map<WorkerId, LostWorker> lost_;  // The newest limits::kLostWorkersMax.
  // Those in kQueued by model: one whose workers are busy holds up no other.
  std::map<std::string, std::map<QueuePlace, RequestId>> queues_;
  FairShares shares_;
  uint64_t arrivals_ = 0;
  bool room_made_ = false;                         // By a leg that ended in this turn.
  std::set<std::pair<Instant, RequestId>> wakes_;  // One per request.
  bool draining_ = false;
};

}  // namespace pdjob::router
