// RelayApi runs the Router core against real connections. It turns the core's effects into legs
// (HTTP calls to workers) and replies, and turns their progress into events. It writes each reply
// to a sink, and does not know who reads it. Bytes pass through raw; a slow reader pauses its
// worker (backpressure). Who may send a request is decided by Reception; Aborts ends requests
// early; RequestWatch sees where their time goes. Loop-bound.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "common/id.h"
#include "net/http/http_client.h"
#include "net/http/http_parser.h"
#include "net/http/http_server.h"
#include "net/loop/core_runner.h"
#include "net/loop/loop.h"
#include "openai/abort_request.h"
#include "openai/replies/told_tokens.h"
#include "router/core/kv_words.h"
#include "router/core/router.h"
#include "router/relay/aborts.h"
#include "router/relay/leg_body.h"
#include "router/relay/reception.h"
#include "router/relay/reply_sink.h"
#include "router/relay/request_facts.h"
#include "router/relay/request_watch.h"
#include "router/streams/stream_record.h"

namespace pdjob::router {

// LearnTokens with the question to the engine. It keeps no reference to the request.
struct TokensQuestion {
  WorkerId worker;
  std::string header_lines;
  std::string body;     // Empty: the engine cannot be asked.
  TokensLearnt answer;  // Complete but for the tokens.
};

class RelayApi final : public net::HttpCallHandler, private Aborts::Requests {
 public:
  // `tracer` may be null.
  RelayApi(net::Loop& loop, const RouterConfig& config, Policies policies,
           std::unique_ptr<Tracer> tracer, std::function<void()> on_drained);
  ~RelayApi() = default;
  RelayApi(const RelayApi&) = delete;
  RelayApi& operator=(const RelayApi&) = delete;

  // A new id, for one request. The caller has it before the request can end.
  RequestId next_id() { return RequestId{++ids_}; }
  // Takes over the request and answers it. `generates` is false for requests without KV.
  void route(RequestId id, net::HttpRequest& request, RequestBody body, bool generates,
             std::unique_ptr<ReplySink> sink);
  // Takes over a request that generates and that no client waits for: no KV is handed over.
  void route_alone(RequestId id, Admission::Tenant tenant, const net::HttpRequest& request,
                   RequestBody body, std::unique_ptr<ReplySink> sink);
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
  // Works by the live keys of `config` from now on (take_live_keys()).
  void take_over(const RouterConfig& config);
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
  Reception& reception() { return reception_; }
  RequestWatch& watch() { return watch_; }
  RouterMetrics& metrics() { return watch_.metrics(); }

  void on_interim(net::CallId call, const net::HttpReplyHead& head) override;
  void on_head(net::CallId call, const net::HttpReplyHead& head) override;
  void on_body(net::CallId call, std::string_view raw) override;
  void on_end(net::CallId call) override;
  void on_error(net::CallId call, const Error& error) override;

 private:
  using Runner = net::CoreRunner<RelayApi, Router, RouterEvent, RouterEffect>;
  friend Runner;

  // A request, until its reply is complete.
  struct Exchange {
    std::unique_ptr<ReplySink> sink;
    std::string_view method = "POST";  // The legs' method.
    std::string target;
    std::string header_lines;  // Shared by all legs; each adds its own.
    std::string request_id;
    std::vector<std::string> rids;  // The client's own names of its prompts.
    // A client's own. Probes, rows of batches and asynchronous requests are not.
    bool abortable = false;
    RequestBody body;
    const KvDialect* dialect = nullptr;  // Its prefill workers' words; hedging mixes no dialects.
    std::string returned_params;         // Two-hop: the KV's place, from the prefill leg.
    bool begun = false;                  // The sink has the head.
    std::string_view degraded;           // Why no KV was handed over; empty: it was.
    Admission::Tenant tenant = 0;
    uint64_t tokens_paid = 0;              // At its arrival.
    bool may_continue = false;             // Its stream, at another worker.
    std::unique_ptr<StreamRecord> record;  // If another worker could continue it.
    Obstacle obstacle = Obstacle::kOff;    // Without a record: why.
    net::CallId relayed;                   // The leg whose bytes the sink gets.
    // The tokens so far, if another worker could go on with this whole reply. One leg at a time
    // tells them.
    std::optional<openai::ToldTokens> told;
    net::CallId teller;
    bool passes_progress = false;  // The client wants to know them, too.
    bool clients_key = false;      // Legs carry the client's own Authorization.
    bool own_id = false;           // The request id is of the router.
    RequestTrail trail;
  };
  enum class Use { kDrop, kCollect, kRelay };
  struct Leg {
    LegId id;
    WorkerId worker;
    WorkerId peer;  // StartLeg::peer.
    Instant began{};
    Use use = Use::kDrop;
    bool resumes = false;  // A decode leg with StartLeg::resumes.
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
  void carry_out(const PairSuspected& effect) { watch_.note(effect); }
  void carry_out(const Retried& effect);
  void carry_out(const OutOfRetries& effect) { watch_.note(effect, text_of(effect.id)); }
  void carry_out(const Hedged& effect) { watch_.note(effect, text_of(effect.id)); }
  void carry_out(const LearnTokens& effect);
  void carry_out(const Degraded& effect);
  void carry_out(const Bypassed& effect) { metrics().bypassed(effect.reason); }
  void carry_out(const Continued& effect) { watch_.note(effect, text_of(effect.id)); }
  void carry_out(const Blamed& effect);
  void carry_out(const TakeOff& effect);
  void carry_out(const AbortRunning& effect);
  void carry_out(const Quiet& effect);
  void carry_out(const WorkerAvoided& effect) { watch_.note(effect); }
  void carry_out(const Complete& effect);
  void carry_out(const Refuse& effect);
  void carry_out(const Abort& effect);
  void carry_out(const Forget& effect) { end(effect.id, Outcome::kClientGone); }
  void carry_out(const Drained& /*effect*/) { on_drained_(); }

  // Requires: the sink, the tenant and the paid tokens of the exchange are set.
  void begin(RequestId id, Exchange admitted, const net::HttpRequest& request, RequestBody body,
             RequestKind kind);
  std::string leg_lines(const StartLeg& effect, const Exchange& exchange, const KvWords& words,
                        const Span* span) const;
  KvWords kv_words(const StartLeg& effect, Exchange& exchange) const;
  struct LegText {
    std::string target;
    std::string body;
  };
  std::string priority_of(const StartLeg& effect, const Exchange& exchange) const;
  LegText leg_text(const StartLeg& effect, const Exchange& exchange, const KvWords& words) const;
  // Asks workers for the tokens of a whole reply while they generate it.
  void ask_progress(const net::HttpRequest& request, Exchange& exchange) const;
  // For a stream of this worker that has not begun.
  void begin_record(const Worker& worker, Exchange& exchange) const;
  void relay_body(Leg& leg, net::CallId call, std::string_view raw);
  void collect_body(Leg& leg, std::string_view raw);
  // Ends the leg of a stream that another worker will continue.
  void take_off(net::CallId call);
  // The leg failed, though its connection lives.
  void give_up(net::CallId call);
  // `error`: why it failed; empty: it did not.
  Leg take_leg(net::CallId call, std::string_view error = "");
  Sight look(RequestId id) const override;
  void answer_aborted(RequestId id) override;
  // Counts the end and drops the exchange.
  void end(RequestId id, Outcome outcome);
  // "request ", and its x-request-id, for the log.
  std::string text_of(RequestId id) const;

  net::Loop& loop_;
  RouterConfig config_;
  const std::function<void()> on_drained_;
  std::vector<std::function<void()>> on_workers_changed_;
  std::function<void()> on_quiet_;
  std::function<void(TokensQuestion)> ask_tokens_;  // Set if the core has kv().
  const std::unique_ptr<net::HttpClient> client_;
  Router core_;
  RequestWatch watch_;
  Reception reception_;
  Aborts aborts_;

  uint64_t ids_ = 0;
  std::unordered_map<RequestId, Exchange> exchanges_;
  std::unordered_map<net::CallId, Leg> legs_;
  std::map<LegId, net::CallId> calls_;

  const net::HttpReplyHead* head_ = nullptr;  // Set while the core handles it.
  std::string scratch_;
  Runner runner_{loop_, core_, *this};
};

}  // namespace pdjob::router
