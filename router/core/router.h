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
// blame.h has the rules for requests that kill workers.
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
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/core.h"
#include "common/random.h"
#include "router/config/router_config.h"
#include "router/core/blame.h"
#include "router/core/pair_suspicions.h"
#include "router/core/prefill_pace.h"
#include "router/core/request_queue.h"
#include "router/core/retry_budget.h"
#include "router/core/router_events.h"
#include "router/core/verdict.h"

namespace pdjob::router {

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
  const KvStores& stores() const { return stores_; }
  // True if RequestFacts::blocks is read.
  bool wants_blocks() const {
    return policies_.prefill->wants_blocks() || policies_.decode->wants_blocks() ||
           stores_.several();
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
  // The job's models, and those that workers report, without adapters.
  std::set<std::string> models() const;
  // WorkerEntry::weight_version of the workers: in a job that updates its weights, the same one of
  // all. "default": nobody has told one. Valid until the next step.
  std::string_view weight_version() const;
  size_t requests_alive() const { return requests_.size(); }
  size_t requests_queued() const { return queue_.size(); }
  uint32_t queue_max() const { return config_.queue_max; }
  // How many of the requests that are alive, and that queue, are in the background.
  struct Background {
    size_t alive = 0;
    size_t queued = 0;
  };
  Background background() const;
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
    std::string fingerprint;     // WorkerEntry::fingerprint of its workers.
    bool offered = false;        // Under `transfer`, until the KV is fetched or released.
    std::string learnt_address;  // Where its decode leg fetches the KV, as learnt from replies.
    Leg& leg(Stage stage) { return stage == Stage::kPrefill ? prefill : decode; }
    bool has(WorkerId worker) const { return worker == prefill.worker || worker == decode.worker; }
  };
  struct Request {
    RequestId id;
    RequestFacts facts;
    RequestQueue::Rank queue_place;
    State state = State::kQueued;
    bool wants_room = false;  // In kQueued: there are workers, but all are busy.
    Instant deadline{};
    Instant queue_deadline{};  // Of the wait since a worker last had the request.
    Instant wake{};            // This request's entry in wakes_.
    Attempt attempt;
    std::optional<Attempt> rival;  // In kConcurrent: a second attempt; the two are equal.
    uint32_t attempts_made = 0;
    uint32_t tries = 0;               // Attempts that count, since a reply last began.
    uint32_t continued = 0;           // Times that its stream broke off.
    bool begun = false;               // The client has the head of the reply.
    std::string fingerprint;          // Once begun: of the workers that can go on with it.
    Stage relayed = Stage::kDecode;   // In kRelaying: the stage whose reply is relayed.
    bool wants_pair = false;          // No prefill worker serves it alone.
    bool prefill_overloaded = false;  // Decode workers then do not prefill instead.
    std::vector<WorkerId> failed;     // Not tried again while others are left.
    std::vector<Accused> accused;
    std::vector<std::pair<WorkerId, WorkerId>> accused_pairs;  // Their hand-overs failed.
    std::string last_failure;       // For the client, if no further attempt succeeds.
    bool hand_over_failed = false;  // Waits for how its prefill leg ends, for a moment.
    Losses losses;
  };
  // A leg that still counts, with its attempt and its request.
  struct Running {
    Request* request = nullptr;  // Null: it was cancelled, or it is of an earlier attempt.
    Attempt* attempt = nullptr;
  };
  struct Usable {
    std::vector<Candidate> candidates;
    std::vector<Candidate> avoided;  // For want of others.
    bool full = false;               // Some are left out because they are.
  };
  struct Pick {
    std::optional<Chosen> worker;
    bool full = false;  // A worker was not a candidate, because it has no room.
  };
  struct ChosenPair {
    Chosen decode;
    std::optional<Chosen> prefill;
    bool degraded = false;
    std::optional<BypassReason> bypass = {};
    // A prefill worker is in the place of the decode worker.
    bool by_prefill() const {
      return bypass == BypassReason::kBusy || bypass == BypassReason::kPromptOnly;
    }
  };
  using Turn = pdjob::Turn<RouterEffect>;

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
  void on(const PairAccused& event, Turn& turn);
  void on(const TokensLearnt& event, Turn& turn);
  void on(const AdmissionSet& event, Turn& turn);
  void on(const LegTakenOff& event, Turn& turn);
  void on(const ConfigChanged& event, Turn& turn);
  void on(const AdapterChanged& event, Turn& turn);
  void on(const DrainRequested& event, Turn& turn);
  void on(const TimePassed& event, Turn& turn);

  std::optional<openai::ApiError> refusal_of(const RequestFacts& facts) const;
  std::optional<openai::ApiError> refusal_of_route(const RequestFacts& facts) const;
  bool usable(std::string_view model) const;
  bool pins_fit(const RequestFacts& facts) const;
  std::vector<const Worker*> workers_for(Stage stage, const Request& request,
                                         const std::string& model, const Worker* partner,
                                         Instant now, Random* some = nullptr) const;
  // `decode`: for a prefill worker, its future partner.
  Usable usable_for(Stage stage, const Request& request, const std::string& model,
                    const Worker* partner, std::optional<WorkerId> decode, Instant now,
                    Random* some) const;
  Pick pick(Stage stage, const Request& request, const std::string& model,
            std::optional<WorkerId> decode, Instant now);
  void keep_near(WorkerId decode, uint64_t tokens, std::vector<Candidate>& candidates) const;
  bool is_avoided(Stage stage, const Worker& worker, const Request& request,
                  std::optional<WorkerId> decode, Instant now) const;
  std::optional<ChosenPair> choose(Request& request, Instant now);
  // Chooses the other half of the pair, if there is to be one.
  std::optional<ChosenPair> choose_prefill(Request& request, const Chosen& decode,
                                           const std::string& model, Instant now);
  // For a request with RequestFacts::route.
  std::optional<ChosenPair> choose_for_route(Request& request, const std::string& model,
                                             Instant now);
  // True if the worker may lack what the request needs although it is well.
  bool may_lack(const Request& request, WorkerId worker) const;
  // A prefill worker that serves the request alone, because `decode` is busy. Null: all are.
  std::optional<Chosen> spare_prefill(const Request& request, const std::string& model,
                                      const Worker* decode, Instant now);

  void place(Request& request, Turn& turn);
  // Places waiting requests in queue order. For each model, it stops once `failures_max` requests
  // found no worker.
  void place_queued(size_t failures_max, Turn& turn);
  void enqueue(Request& request, Turn& turn);
  void send(Request& request, const ChosenPair& choice, Turn& turn);
  void send_second_hop(Request& request, bool kv_params, Turn& turn);
  // Requires: the leg has ended well.
  void note_pace(const Leg& leg, Stage stage, Instant now);
  void on_prefilled(Request& request, Attempt& attempt, const LegEnded& event, Turn& turn);
  void start_leg(Request& request, Stage stage, StartLeg effect, Turn& turn);
  void end_leg(const Request& request, Leg& leg);
  void end_prompt(Leg& leg);
  void cancel_leg(const Request& request, Attempt& attempt, Stage stage, Turn& turn);
  void cancel_legs(Request& request, Turn& turn);
  void drop_prefill(const Request& request, Attempt& attempt, Turn& turn);

  // The prefill of this attempt is slow: starts an attempt on another pair beside it. The first to
  // answer serves the request (Dean and Barroso, The Tail at Scale, 2013).
  void hedge(Request& request, Turn& turn);
  // When to hedge; empty: never.
  std::optional<Duration> slow_after(const Request& request);
  // Drops the attempt beside this one, which becomes `request.attempt`.
  void keep_only(Request& request, const Attempt& kept, Turn& turn);
  // This attempt has failed; its rival takes over. Returns false if there is no rival.
  bool leave_to_rival(Request& request, const Attempt& failed, Turn& turn);

  // Answers of workers: router_answers.cc.
  void judge(Request& request, WorkerId worker, const LegAnswered& answer, Verdict verdict,
             Turn& turn);
  void suspect(WorkerId prefill, WorkerId decode, PairFault fault, Turn& turn);
  void judge_pairs(Request& request, const Attempt& attempt, Turn& turn);
  void convict(Request& request, const Attempt& attempt, Turn& turn);
  void relay(Request& request, const Attempt& attempt, Stage stage, Turn& turn);
  void serve_by_pair(Request& request, Turn& turn);
  void relay_refusal(Request& request, Attempt& attempt, Stage stage, Turn& turn);
  static bool is_ambiguous(const Attempt& attempt, Stage stage, Verdict verdict);
  void avoid_for_request(Request& request, Attempt& attempt, const LegAnswered& answer,
                         Verdict verdict);
  void answer_badly(Request& request, Attempt& attempt, const LegAnswered& answer, Verdict verdict,
                    Turn& turn);
  void end_badly(Request& request, Attempt& attempt, const LegAnswered& answer, Verdict verdict,
                 Turn& turn);
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
  void convict_killer(Request& request, Turn& turn);
  void keep_promise(Leg& leg);
  void begin_trial(Leg& leg);
  void end_trial(Leg& leg);

  void refuse(Request& request, const Error& error, Turn& turn);
  void complete(Request& request, Turn& turn);
  void abort(Request& request, Turn& turn);
  void erase(Request& request);

  void set_wake(Request& request, Instant when);
  Request* find(RequestId id);
  Running find_running(const LegId& leg);
  PrefillPace& pace_of(WorkerId prefill);
  PairPolicy& policy_of(Stage stage) {
    return stage == Stage::kPrefill ? *policies_.prefill : *policies_.decode;
  }
  bool may_try_again(const Request& request) const {
    return request.tries < (request.facts.pinned() ? 1 : config_.attempts);
  }

  RouterConfig config_;
  Random random_;
  const BitSource id_bits_;
  const Policies policies_;
  WorkerTable table_;
  KvStores stores_;
  PairSuspicions suspicions_;
  RetryBudget retries_;
  // By model, so a large model does not count as slow.
  std::map<std::string, PrefillPace> prefill_paces_;
  std::map<RequestId, Request> requests_;
  Blame blame_;
  RequestQueue queue_;                             // Those in kQueued.
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
