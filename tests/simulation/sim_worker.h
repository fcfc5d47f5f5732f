// One life of one simulated worker process: the real core of its role, in a shell on virtual time.
// The shell does the work of worker/api/openai_api, worker/core/engine_thread and
// kvtransfer/kv_endpoint.
//
// The engine is busy while a step runs. Events that arrive meanwhile wait in the inbox, as in the
// channel of the engine thread.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "net/control/message.h"
#include "router/core/router.h"
#include "tests/simulation/invariants.h"
#include "tests/simulation/sim_links.h"
#include "tests/simulation/sim_receiver.h"
#include "tests/simulation/sim_sender.h"
#include "tests/simulation/toy_engine.h"
#include "tests/simulation/workload.h"
#include "worker/core/worker_core.h"

namespace pdjob::simulation {

// Where a prompt's KV is, as a prefill worker's reply says in the two-hop protocol.
struct KvPlace {
  Incarnation worker;
  TransferId transfer;
};

// A leg's HTTP request.
struct LegAsk {
  router::LegId leg;
  Ask ask;
  worker::KvMode kv = worker::KvMode::kLocal;
  KvPlace place;         // For kOffer only the transfer is set.
  bool two_hop = false;  // The decode leg follows this leg.
  // For a continued stream: the tokens that each choice already has.
  std::vector<std::vector<Token>> resumed;
};

struct TokenChunk {
  uint32_t choice = 0;
  Token token = 0;
  FinishReason finish = FinishReason::kNone;
};

class SimWorker {
 public:
  SimWorker(SimWorld& world, Incarnation incarnation, std::string name, net::Role role,
            std::unique_ptr<worker::WorkerCore> core, uint32_t queue_max);

  Incarnation incarnation() const { return incarnation_; }
  net::Role role() const { return role_; }
  SimSender& sender() { return sender_; }
  SimReceiver& receiver() { return receiver_; }
  ToyEngine& engine() { return engine_; }

  // From the router, or any other HTTP client.
  void on_leg(const LegAsk& ask);
  void on_leg_closed(const router::LegId& leg);
  void on_release(TransferId transfer);
  std::vector<router::LegId> legs() const;
  void drain();

  // From the KV endpoint.
  void offer_awaited(TransferId id, bool awaited);
  void offer_ended(TransferId id);
  void fetch_done(TransferId id, uint64_t tail);
  struct FailedFetch {
    Error error;
    bool region_safe = true;
    bool pair_suspect = false;
  };
  void fetch_failed(TransferId id, const FailedFetch& failed);
  void fetch_released(TransferId id);
  // A transfer writes rows of this process or of another one.
  void write_rows(TransferId id, SequenceId target, uint32_t first, const std::vector<Row>& rows);

  // Faults.
  void fail_next_step() { next_step_fails_ = true; }
  void set_slowness(uint32_t factor) { slowness_ = factor; }

  bool idle() const;
  bool drained() const { return drained_; }
  worker::CoreLoad load() const { return core_->load(); }

 private:
  struct Exchange {
    LegAsk ask;
    RequestId request;
    bool begun = false;
    uint32_t choices_left = 0;
    std::vector<TokenChunk> held;  // Chunks of a reply that is sent whole.
    SimChannel out;
  };
  struct Choice {
    Token newest = 0;
    bool known = false;  // The newest is the last token that the continued stream already had.
    uint32_t generated = 0;
  };
  struct Live {
    LegAsk ask;
    std::vector<Choice> choices;
    Instant deadline;
    std::optional<uint64_t> tail;
    bool ended = false;
    bool transferring = false;
    bool awaiting = false;
    bool pair_suspect = false;
  };
  using Command = std::function<void()>;

  // The engine thread.
  void enqueue(Command command);
  void turn();
  void wake_at(Instant when);
  void feed(const worker::Event& event);
  void finish_step(const worker::RunStep& step);
  bool dies_of(const worker::BatchItem& item);
  void sample(const worker::BatchItem& item, uint64_t logits, worker::StepFinished& outcome);
  void forget(RequestId request);
  Live& live(RequestId request);
  RequestId request_of(TransferId id);
  // Calls between the engine thread and the endpoint, in both directions.
  void to_kv(std::function<void(SimWorker&)> call);
  void from_kv(Command command);

  void apply(const worker::RunStep& effect, std::vector<worker::Event>& events);
  void apply(const worker::AwaitFetch& effect, std::vector<worker::Event>& events);
  void apply(const worker::StartFetch& effect, std::vector<worker::Event>& events);
  void apply(const worker::CancelFetch& effect, std::vector<worker::Event>& events);
  void apply(const worker::SampleTail& effect, std::vector<worker::Event>& events);
  void apply(const worker::StartOffer& effect, std::vector<worker::Event>& events);
  void apply(const worker::OfferRows& effect, std::vector<worker::Event>& events);
  void apply(const worker::CommitOffer& effect, std::vector<worker::Event>& events);
  void apply(const worker::WithdrawOffer& effect, std::vector<worker::Event>& events);
  void apply(const worker::ForkSequence& effect, std::vector<worker::Event>& events);
  void apply(const worker::ClearSequence& effect, std::vector<worker::Event>& events);
  void apply(const worker::TrimSequence& effect, std::vector<worker::Event>& events);
  void apply(const worker::ReportReuse& effect, std::vector<worker::Event>& events);
  void apply(const worker::ReportKept& effect, std::vector<worker::Event>& events);
  void apply(const worker::EndRequest& effect, std::vector<worker::Event>& events);
  void apply(const worker::ReportDrained& effect, std::vector<worker::Event>& events);
  void apply(const worker::Deliver& effect, std::vector<worker::Event>& events);
  void apply(const worker::FailRequest& effect, std::vector<worker::Event>& events);

  // The API.
  Exchange* exchange_of(RequestId request);
  // `known`: the client already has the token.
  void deliver(Exchange& exchange, const TokenChunk& chunk, bool known);
  void finish(Exchange& exchange);
  void drop(RequestId request);
  struct Head {
    int status = 200;
    bool retry_after = false;
    bool kv_suspect = false;
  };
  void send_head(Exchange& exchange, const Head& head);
  void send_chunk(Exchange& exchange, const TokenChunk& chunk);

  SimWorld& world_;
  const Incarnation incarnation_;
  const std::string name_;
  const net::Role role_;
  std::unique_ptr<worker::WorkerCore> core_;
  CoreWatch watch_;
  ToyEngine engine_;
  SimSender sender_;
  SimReceiver receiver_;

  std::deque<Command> inbox_;
  bool busy_ = false;
  bool next_step_fails_ = false;
  uint32_t slowness_ = 1;
  Instant wake_ = kNever;
  std::map<RequestId, Live> live_;
  std::map<TransferId, RequestId> transfers_;
  std::set<TransferId> awaited_;
  SimChannel to_kv_;
  SimChannel from_kv_;

  std::map<router::LegId, Exchange> exchanges_;
  std::map<RequestId, router::LegId> generations_;
  uint64_t requests_made_ = 0;
  bool drained_ = false;
};

}  // namespace pdjob::simulation
