// RelayApi: runs the Router core against real connections: its effects become legs (HTTP calls to
// workers) and replies to clients, and what legs and clients do becomes its events. Bytes pass
// through raw; a slow client pauses its worker.
//
// Events that arise while effects are being carried out wait for their turn, so the core sees one
// at a time. Loop-bound.
#pragma once

#include <array>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "common/id.h"
#include "net/event_loop.h"
#include "net/http_client.h"
#include "net/http_parser.h"
#include "net/http_server.h"
#include "router/admission.h"
#include "router/kv_words.h"
#include "router/leg_body.h"
#include "router/reply_capture.h"
#include "router/router.h"
#include "router/router_metrics.h"
#include "router/stream_record.h"
#include "router/tracer.h"
#include "router/warn_gate.h"

namespace pdjob::router {

// LearnTokens, with what the engine is to be told; nothing holds on to the request itself.
struct TokensQuestion {
  WorkerId worker;
  std::string header_lines;
  std::string body;     // Empty: it cannot be asked.
  TokensLearnt answer;  // But for the tokens.
};

class RelayApi final : public net::HttpCallHandler {
 public:
  RelayApi(net::EventLoop& loop, net::HttpServer& server, const RouterConfig& config,
           Policies policies, std::function<void()> on_drained);
  ~RelayApi();
  RelayApi(const RelayApi&) = delete;
  RelayApi& operator=(const RelayApi&) = delete;

  // Takes the request over; it is answered from here on. `generates` false: there is no KV in it.
  // `capture`: gets a copy of the reply, which says that the response cache had none.
  void route(net::ExchangeId client, net::HttpRequest& request, RequestBody body, bool generates,
             std::unique_ptr<ReplyCapture> capture = nullptr);
  // The same of a generation that was let in before; `client` need not be the server's.
  void route_admitted(net::ExchangeId client, Admission::Tenant tenant,
                      const net::HttpRequest& request, RequestBody body,
                      std::unique_ptr<ReplyCapture> capture);
  void client_left(net::ExchangeId client);
  void client_writable(net::ExchangeId client);

  void submit(RouterEvent event);
  void on_workers_changed(std::function<void()> then) {
    on_workers_changed_.push_back(std::move(then));
  }
  // Who asks engines for tokens, each time to an end by TokensLearnt.
  void on_learn_tokens(std::function<void(TokensQuestion)> ask) { ask_tokens_ = std::move(ask); }

  const Router& core() const { return core_; }
  const Admission& admission() const { return admission_; }
  // Of a request whose body is still to come: notes whose it is in `account`. A reply: it is
  // denied.
  std::optional<net::EarlyReply> let_in(net::HttpRequest& request);
  // Of a request that let_in() has seen.
  Admission::Tenant tenant_of(const net::HttpRequest& request) const;
  void deny(net::ExchangeId client, const Admission::Denial& denial);
  // The client's own, or a new one.
  std::string request_id_of(const net::HttpRequest& request);
  // For a request that is to run later: it costs all that it would now. False: it is denied, and
  // answered.
  bool admit_once(net::ExchangeId client, Admission::Tenant tenant, const RequestBody& body);
  // For a request that no worker sees: it costs no tokens. Header lines about rates for its reply;
  // nothing: it is denied, and answered.
  std::optional<Admission::Headers> admit_free(net::ExchangeId client, Admission::Tenant tenant);
  RouterMetrics& metrics() { return metrics_; }
  std::string metrics_text();

  void on_head(net::CallId call, const net::HttpReplyHead& head) override;
  void on_body(net::CallId call, std::string_view raw) override;
  void on_end(net::CallId call) override;
  void on_error(net::CallId call, const Error& error) override;

 private:
  // A client's request, until its reply is complete. Its RequestId is its ExchangeId's number.
  struct Exchange {
    net::ExchangeId client;
    std::string target;
    std::string header_lines;  // Of each leg, but for what is its own.
    std::string request_id;
    RequestBody body;
    const KvDialect* dialect = nullptr;  // Of its prefill workers; hedging does not mix them.
    std::string returned_params;         // Two-hop: what the prefill leg said of the KV.
    Instant arrived{};
    Instant legs_began{};
    Instant first_bytes{};
    Instant last_bytes{};
    int status = 0;  // Of the relayed reply.
    bool keep_alive = true;
    bool begun = false;  // The client has the head.
    Admission::Tenant tenant = 0;
    uint64_t tokens_paid = 0;              // When it came.
    std::unique_ptr<StreamRecord> record;  // Of a stream that may go on at another worker.
    net::CallId relayed;                   // The leg whose bytes the client gets.
    std::unique_ptr<ReplyCapture> capture;
    std::unique_ptr<Span> span;  // Of a traced request.
  };
  enum class Use { kDrop, kCollect, kRelay };
  struct Leg {
    LegId id;
    WorkerId worker;
    WorkerId peer;  // StartLeg::peer.
    Instant began{};
    Use use = Use::kDrop;
    bool dechunk = false;
    bool resumes = false;  // StartLeg::resumes.
    bool failed = false;  // By what it sent; the failure is told when its head has been dealt with.
    net::ChunkDecoder decoder;
    net::BodyFraming framing = net::BodyFraming::kNone;
    std::string collected;
    std::unique_ptr<Span> span;
  };

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
  void carry_out(const Complete& effect);
  void carry_out(const Refuse& effect);
  void carry_out(const Abort& effect);
  void carry_out(const Forget& effect);
  void carry_out(const Drained& effect);

  // Without a name where there are no tenants.
  const TenantConfig& tenant_config(Admission::Tenant tenant) const;
  // False: it is denied, and answered.
  bool admit(net::ExchangeId client, Admission::Tenant tenant, uint64_t tokens);
  // Counts and logs it. Header lines for its reply.
  Admission::Headers note_denial(const Admission::Denial& denial);
  void begin(net::ExchangeId client, Admission::Tenant tenant, uint64_t tokens_paid,
             const net::HttpRequest& request, RequestBody body, bool generates,
             std::unique_ptr<ReplyCapture> capture);
  void step(const RouterEvent& event);
  // What consistent_hash goes by; empty: nothing.
  std::string_view session_of(const net::HttpRequest& request, const RequestBody& body) const;
  // Of a worker; `gone` if it has left.
  std::string_view name_of(WorkerId worker, std::string_view gone = {}) const;
  KvWords kv_words(const StartLeg& effect, Exchange& exchange) const;
  std::string leg_body(const StartLeg& effect, const Exchange& exchange,
                       const KvWords& words) const;
  void relay_body(Leg& leg, net::CallId call, std::string_view raw);
  void collect_body(Leg& leg, std::string_view raw);
  // `error`: why it did not end well.
  Leg take_leg(net::CallId call, std::string_view error = "");
  void end_trace(Exchange& exchange, Outcome outcome);
  // Counts the end and drops the exchange.
  void end(RequestId id, Outcome outcome, ReplyCapture::End reply = ReplyCapture::End::kBrokenOff);
  void arm_timer();

  net::EventLoop& loop_;
  net::HttpServer& server_;
  const RouterConfig config_;
  const bool several_prompts_;  // KvDialect::several_prompts of the workers.
  const std::function<void()> on_drained_;
  std::vector<std::function<void()>> on_workers_changed_;
  std::function<void(TokensQuestion)> ask_tokens_;  // There, where the core has kv().
  const std::unique_ptr<net::HttpClient> client_;
  Router core_;
  Admission admission_;
  RouterMetrics metrics_;
  const std::unique_ptr<Tracer> tracer_;  // Where the config has one.

  std::unordered_map<RequestId, Exchange> exchanges_;
  std::unordered_map<net::CallId, Leg> legs_;
  std::map<LegId, net::CallId> calls_;

  std::deque<RouterEvent> waiting_;
  std::vector<RouterEffect> effects_;
  bool stepping_ = false;
  const net::HttpReplyHead* head_ = nullptr;  // While the core decides about it.
  std::string scratch_;
  net::TimerId timer_;
  Instant timer_at_ = kNever;
  WarnGate degraded_warning_{std::chrono::seconds(10)};
  // Clients make these lines, as many as they like. One for each reason.
  std::array<WarnGate, kDenialReasons> denial_lines_;
};

}  // namespace pdjob::router
