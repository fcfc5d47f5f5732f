// RelayApi runs the Router core against real connections. It turns the core's effects into legs
// (HTTP calls to workers) and replies, and turns their progress into events. It writes each reply
// to a sink, and does not know who reads it. Bytes pass through raw; a slow reader pauses its
// worker (backpressure). Loop-bound.
#pragma once

#include <array>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "common/crypto/job_keys.h"
#include "common/id.h"
#include "common/warn_gate.h"
#include "net/http/http_client.h"
#include "net/http/http_parser.h"
#include "net/http/http_server.h"
#include "net/loop/core_runner.h"
#include "net/loop/loop.h"
#include "openai/abort_request.h"
#include "router/admission/admission.h"
#include "router/core/kv_words.h"
#include "router/core/router.h"
#include "router/core/stream_record.h"
#include "router/relay/leg_body.h"
#include "router/relay/reply_sink.h"
#include "router/relay/request_timings.h"
#include "router/relay/router_metrics.h"
#include "router/relay/tracer.h"

namespace pdjob::router {

// LearnTokens with the question to the engine. It keeps no reference to the request.
struct TokensQuestion {
  WorkerId worker;
  std::string header_lines;
  std::string body;     // Empty: the engine cannot be asked.
  TokensLearnt answer;  // Complete but for the tokens.
};

class RelayApi final : public net::HttpCallHandler {
 public:
  // `tracer` may be null.
  RelayApi(net::Loop& loop, const RouterConfig& config, Policies policies,
           std::unique_ptr<Tracer> tracer, std::function<void()> on_drained);
  ~RelayApi();
  RelayApi(const RelayApi&) = delete;
  RelayApi& operator=(const RelayApi&) = delete;

  // A new id, for one request. The caller has it before the request can end.
  RequestId next_id() { return RequestId{++ids_}; }
  // Takes over the request and answers it. `generates` is false for requests without KV.
  void route(RequestId id, net::HttpRequest& request, RequestBody body, bool generates,
             std::unique_ptr<ReplySink> sink);
  // Takes over a request that generates and was admitted before.
  void route_admitted(RequestId id, Admission::Tenant tenant, const net::HttpRequest& request,
                      RequestBody body, std::unique_ptr<ReplySink> sink);
  // Ends the requests of this tenant that are meant, before their time: with 200, the tokens that
  // they have, and finish reason "abort". Returns how many; their replies come later.
  size_t abort(const openai::AbortRequest& asked, Admission::Tenant tenant);
  // Nobody wants the reply any more. Ignores requests that have ended.
  void client_left(RequestId id);
  // The sink was full and takes bytes again. Ignores requests that have ended.
  void client_writable(RequestId id);

  void submit(RouterEvent event) { runner_.submit(std::move(event)); }
  // These workers are gone. Ends the legs that one of them broke, and that would connect again.
  void end_reconnecting_legs(const std::vector<net::Departure>& left);
  void on_workers_changed(std::function<void()> then) {
    on_workers_changed_.push_back(std::move(then));
  }
  // Called while admission is closed and no worker has a client's request.
  void on_quiet(std::function<void()> then) { on_quiet_ = std::move(then); }
  // Sets the function that asks engines for tokens. It ends each question with TokensLearnt.
  void on_learn_tokens(std::function<void(TokensQuestion)> ask) { ask_tokens_ = std::move(ask); }

  const Router& core() const { return core_; }
  const Admission& admission() const { return admission_; }
  // Checks a request before its body arrives, and notes its tenant in `account`. Returns a reply if
  // the request is denied.
  std::optional<net::EarlyReply> let_in(net::HttpRequest& request);
  // The same, whatever the tenant has under way: only an unknown key is denied.
  std::optional<net::EarlyReply> recognize(net::HttpRequest& request);
  // let_in() for a request for files or batches. Notes no tenant.
  std::optional<net::EarlyReply> let_in_batch_request(const net::HttpRequest& request);
  // Who asks: by the key, or, beside the key of the Batch API's process, by the name that it says.
  std::variant<Admission::Tenant, Admission::Denial> identify(
      const net::HttpRequest& request) const;
  // Requires: let_in() or recognize() has seen the request.
  Admission::Tenant tenant_of(const net::HttpRequest& request) const;
  // Counts and logs the denial. Returns the reply to it.
  net::EarlyReply denied(const Admission::Denial& denial);
  // The client's own, or a new one.
  std::string request_id_of(const net::HttpRequest& request);
  // Charges the full cost of a request that runs later. Returns a reply if it is denied.
  std::optional<net::EarlyReply> charge(Admission::Tenant tenant, const RequestBody& body);
  // Admits a request that the router answers itself; it costs no tokens. Returns the rate headers
  // for its reply. Empty optional: it is denied, and answered.
  std::optional<Admission::Headers> admit_free(ReplySink& sink, Admission::Tenant tenant);
  RouterMetrics& metrics() { return metrics_; }
  // Where the time of requests went, for the launcher. Empty: the request does not have its key.
  std::string timings_json(const net::HttpRequest& request) const;
  std::string metrics_text();
  // Its handshakes are among the metrics. It outlives this.
  void count_handshakes(net::ServerTls& tls) { tls_ = &tls; }

  void on_head(net::CallId call, const net::HttpReplyHead& head) override;
  void on_body(net::CallId call, std::string_view raw) override;
  void on_end(net::CallId call) override;
  void on_error(net::CallId call, const Error& error) override;

 private:
  using Runner = net::CoreRunner<RelayApi, Router, RouterEvent, RouterEffect, TimePassed>;
  friend Runner;

  // A request, until its reply is complete.
  struct Exchange {
    std::unique_ptr<ReplySink> sink;
    std::string_view method = "POST";  // Of its legs.
    std::string target;
    std::string header_lines;  // Shared by all legs; each adds its own.
    std::string request_id;
    std::vector<std::string> rids;  // The client's own names of its prompts.
    // A client's own. Probes, rows of batches and asynchronous requests are not.
    bool abortable = false;
    bool stream = false;
    RequestBody body;
    const KvDialect* dialect = nullptr;  // Of its prefill workers; hedging mixes no dialects.
    std::string returned_params;         // Two-hop: the KV's place, from the prefill leg.
    Instant arrived{};
    Instant legs_began{};
    Instant first_bytes{};
    Instant last_bytes{};
    int status = 0;             // Status code of the relayed reply.
    bool begun = false;         // The sink has the head.
    std::string_view degraded;  // Why no KV was handed over; empty: it was.
    Admission::Tenant tenant = 0;
    uint64_t tokens_paid = 0;              // At its arrival.
    std::unique_ptr<StreamRecord> record;  // If another worker could continue it.
    net::CallId relayed;                   // The leg whose bytes the sink gets.
    std::unique_ptr<Span> span;            // If it is traced.
    bool timed = false;                    // Its timing is kept: it generates, and is no probe.
    bool clients_key = false;              // Legs carry the client's own Authorization.
    bool own_id = false;                   // The request id is of the router.
    Instant prefilled{};
    Duration kv_visible{};
    RequestTiming timing;  // Filled in as it becomes known.
  };
  using Prompts = std::set<uint32_t>;  // Of a batch, by index; empty: all.
  // The prompts of the request that are meant; nullopt: none.
  static std::optional<Prompts> meant(const Exchange& exchange, const openai::AbortRequest& asked);
  enum class Use { kDrop, kCollect, kRelay };
  struct Leg {
    LegId id;
    WorkerId worker;
    WorkerId peer;  // StartLeg::peer.
    Instant began{};
    Use use = Use::kDrop;
    bool resumes = false;  // StartLeg::resumes.
    bool failed = false;   // Its reply was bad; reported once its head has been handled.
    net::ChunkDecoder decoder;
    net::BodyFraming framing = net::BodyFraming::kNone;
    std::string collected;
    std::unique_ptr<Span> span;
  };

  void stepped(const RouterEvent& /*event*/, const std::vector<RouterEffect>& /*effects*/) {}
  void carried_out(const RouterEvent& event);
  void carry_out(const StartLeg& effect);
  void carry_out(const CancelLeg& effect);
  void carry_out(const ReleaseOffer& effect);
  void carry_out(const Relay& effect);
  void carry_out(const PairSuspected& effect);
  void carry_out(const Retried& effect);
  void carry_out(const OutOfRetries& effect);
  void carry_out(const Hedged& effect);
  void carry_out(const LearnTokens& effect);
  void carry_out(const Degraded& effect);
  void carry_out(const Bypassed& effect);
  void carry_out(const Continued& effect);
  void carry_out(const Blamed& effect);
  void carry_out(const TakeOff& effect);
  void carry_out(const AbortRunning& effect);
  void carry_out(const Quiet& effect);
  void carry_out(const WorkerAvoided& effect);
  void carry_out(const Complete& effect);
  void carry_out(const Refuse& effect);
  void carry_out(const Abort& effect);
  void carry_out(const Forget& effect);
  void carry_out(const Drained& effect);

  // The name is empty if there are no tenants.
  const TenantConfig& tenant_config(Admission::Tenant tenant) const;
  // Returns a reply if the request is denied.
  std::optional<net::EarlyReply> admit(Admission::Tenant tenant, uint64_t tokens);
  // Requires: the sink, the tenant and the paid tokens of the exchange are set.
  void begin(RequestId id, Exchange admitted, const net::HttpRequest& request, RequestBody body,
             bool generates);
  // The key for consistent_hash; empty: none.
  bool is_probe(const net::HttpRequest& request, const TenantConfig& tenant) const;
  // A row of a batch.
  bool is_row(const net::HttpRequest& request) const;
  bool prefills_several_prompts() const;
  std::string_view session_of(const net::HttpRequest& request, const RequestBody& body) const;
  // The worker's name; `gone` if it has left.
  std::string_view name_of(WorkerId worker, std::string_view gone = {}) const;
  KvWords kv_words(const StartLeg& effect, Exchange& exchange) const;
  std::string leg_body(const StartLeg& effect, const Exchange& exchange,
                       const KvWords& words) const;
  void relay_body(Leg& leg, net::CallId call, std::string_view raw);
  void collect_body(Leg& leg, std::string_view raw);
  // Ends the leg of a stream that another worker will continue.
  void take_off(net::CallId call);
  // `error`: why it failed; empty: it did not.
  Leg take_leg(net::CallId call, std::string_view error = "");
  void end_trace(Exchange& exchange, Outcome outcome);
  void keep_timing(RequestId id, Exchange& exchange, Outcome outcome);
  // The name of a request at workers. No client can guess it, and no other request has it.
  std::string leg_name(RequestId id) const;
  // Notes that these prompts of the request are to end.
  void begin_abort(RequestId id, const Prompts& prompts);
  // Takes the next step for the requests in abort_due_, and comes again until all have ended.
  void step_aborts();
  void step_aborts_soon();  // In the next turn.
  // Returns true if the router has ended the request itself.
  bool step_abort(RequestId id);
  // A worker answers one question at a time; names that come meanwhile are in the next one.
  using Asked = std::pair<WorkerId, Admission::Tenant>;
  void ask_to_abort(const Asked& asked);
  void answer_aborted(RequestId id);
  // Counts the end and drops the exchange.
  void end(RequestId id, Outcome outcome);
  // "request ", and its x-request-id, for the log.
  std::string text_of(RequestId id) const;

  net::Loop& loop_;
  const RouterConfig config_;
  const std::function<void()> on_drained_;
  std::vector<std::function<void()>> on_workers_changed_;
  std::function<void()> on_quiet_;
  std::function<void(TokensQuestion)> ask_tokens_;  // Set if the core has kv().
  const std::unique_ptr<net::HttpClient> client_;
  Router core_;
  Admission admission_;
  const KeyCheck probe_check_;
  const KeyCheck rows_check_;
  RouterMetrics metrics_;
  RequestTimings timings_;
  net::ServerTls* tls_ = nullptr;
  const std::unique_ptr<Tracer> tracer_;  // If the config has one.

  const std::string leg_prefix_;
  uint64_t ids_ = 0;
  std::unordered_map<RequestId, Exchange> exchanges_;
  std::unordered_map<net::CallId, Leg> legs_;
  std::map<LegId, net::CallId> calls_;
  // A request that is to end.
  struct Ending {
    Instant since{};  // The first call that meant it.
    Prompts prompts;
  };
  std::map<RequestId, Ending> aborting_;
  std::set<RequestId> abort_due_;
  struct AbortQuestion {
    bool in_flight = false;
    std::set<std::string, std::less<>> next;  // The names that it will have.
  };
  std::map<Asked, AbortQuestion> abort_questions_;
  std::optional<net::TimerId> abort_timer_;  // Makes all of aborting_ due.
  std::optional<net::TimerId> abort_soon_;

  const net::HttpReplyHead* head_ = nullptr;  // Set while the core handles it.
  std::string scratch_;
  WarnGate degraded_warning_{std::chrono::seconds(10)};
  WarnGate avoided_warning_{std::chrono::seconds(1)};
  // Clients cause these lines, as many as they like. One gate for each reason.
  std::array<WarnGate, kDenialReasons> denial_lines_;
  Runner runner_{loop_, core_, *this};
};

}  // namespace pdjob::router
