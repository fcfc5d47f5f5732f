#include "router/members/kv_events_api.h"

#include <algorithm>
#include <iterator>
#include <optional>
#include <utility>
#include <variant>

#include "common/limits.h"
#include "common/log.h"
#include "openai/replies/tokenize_reply.h"
#include "router/prefix_index/kv_event_order.h"

namespace pdjob::router {
namespace {

constexpr Duration kReplayTimeout = std::chrono::seconds(5);  // For the next batch.
constexpr Duration kTokenizeTimeout = std::chrono::seconds(10);
// Limit of the buffer for a worker's cache content. Far more than the index can hold.
constexpr size_t kAtFirstBytesMax = 256 * limits::kMiB;

uint16_t port_of_rank(uint16_t first, uint32_t rank) {
  return first == 0 ? uint16_t{0} : static_cast<uint16_t>(first + rank);
}

net::KvPublisher publisher_of(const net::WorkerEntry& worker, uint32_t rank) {
  return {.host = worker.host,
          .port = port_of_rank(worker.kv_events_port, rank),
          .replay_port = port_of_rank(worker.kv_replay_port, rank),
          .topic = ""};
}

}  // namespace

// The event stream of one worker, or of one of its data-parallel ranks.
class KvEventsApi::Engine {
 public:
  virtual ~Engine() = default;
  virtual Status open() = 0;

 protected:
  Engine(KvEventsApi& api, WorkerId worker, std::string stream_name, uint32_t data_rank = 0)
      : owner(api), id(worker), rank(data_rank), name(std::move(stream_name)) {}

  void begin() { log::info(name + " tells what is in its prefix cache"); }
  void tell_anew(bool complete) { owner.relay_.submit(KvToldAnew{id, complete, rank}); }

  void tell(std::vector<openai::KvEvent> events) {
    owner.relay_.metrics().kv_batch();
    owner.relay_.submit(KvTold{id, std::move(events), rank});
  }
  // Drops what the worker told before.
  void cannot_read(const Error& error) {
    if (owner.warning_.opens(owner.loop_.now())) {
      log::warn(name + ": " + error.message + "; what it told before is forgotten");
    }
    owner.relay_.metrics().kv_gaps(1);
    tell_anew(/*complete=*/false);
  }

  KvEventsApi& owner;
  const WorkerId id;
  const uint32_t rank;
  const std::string name;
};

// A pdjob worker's stream, which never loses an event.
class KvEventsApi::OwnWorker final : public Engine, public openai::KvStream::Handler {
 public:
  OwnWorker(KvEventsApi& api, WorkerId worker, const net::WorkerEntry& entry)
      : Engine(api, worker, entry.name),
        stream_(api.loop_, *api.client_, *this, {entry.host, entry.port}, entry.key) {}

  Status open() override {
    stream_.open();
    return ok();
  }
  void on_connected() override {
    begin();
    at_first_.emplace();
    at_first_bytes_ = 0;
    tell_anew(/*complete=*/false);
  }
  void on_disconnected() override {
    log::info(name + " does not tell any longer what is in its prefix cache");
    tell_anew(/*complete=*/false);
  }
  // Holds events back until all of the cache's content is here: half of it would look like all.
  bool on_batch(std::string_view payload) override {
    if (payload.empty()) {
      if (at_first_) {
        tell(*std::exchange(at_first_, std::nullopt));
      }
      return true;
    }
    auto events = openai::decode_kv_events(payload);
    if (!events) {
      cannot_read(events.error());
      return false;
    }
    if (!at_first_) {
      tell(std::move(*events));
      return true;
    }
    std::ranges::move(*events, std::back_inserter(*at_first_));
    at_first_bytes_ += payload.size();
    if (at_first_bytes_ > kAtFirstBytesMax) {
      tell(*std::exchange(at_first_, std::nullopt));
    }
    return true;
  }

 private:
  std::optional<std::vector<openai::KvEvent>> at_first_;  // Set until all of it is here.
  size_t at_first_bytes_ = 0;
  openai::KvStream stream_;
};

// A foreign engine, which publishes its events.
class KvEventsApi::Publisher final : public Engine, public net::KvSubscription::Handler {
 public:
  Publisher(KvEventsApi& api, WorkerId worker, std::string stream_name,
            const net::KvPublisher& publisher, uint32_t data_rank = 0)
      : Engine(api, worker, std::move(stream_name), data_rank),
        order_(publisher.replay_port > 0),
        subscription_(api.loop_, api.context_, *this, publisher) {}
  ~Publisher() override { owner.loop_.cancel(deadline_); }

  Status open() override {
    tell_anew(/*complete=*/false);
    return subscription_.open();
  }

  void on_connected() override {
    begin();
    step([&](auto& effects) { order_.connected(effects); });
  }
  void on_disconnected() override {
    log::warn(name + " does not tell any longer what is in its prefix cache");
    step([&](auto& effects) { order_.disconnected(effects); });
  }
  void on_batch(uint64_t number, std::string payload) override {
    step([&](auto& effects) { order_.batch(number, std::move(payload), effects); });
  }
  void on_replayed(uint64_t number, std::string payload) override {
    step([&](auto& effects) { order_.replayed(number, std::move(payload), effects); });
  }
  void on_replay_end() override {
    step([&](auto& effects) { order_.replay_ended(effects); });
  }

 private:
  void step(const auto& event) {
    std::vector<KvOrderEffect> effects;
    const uint64_t gaps = order_.gaps();
    event(effects);
    owner.relay_.metrics().kv_gaps(order_.gaps() - gaps);
    for (size_t i = 0; i < effects.size(); ++i) {  // carry_out() may append.
      carry_out(effects[i], effects);
    }
    arm();
  }

  void carry_out(KvOrderEffect effect, std::vector<KvOrderEffect>& effects) {
    if (const auto* begun = std::get_if<KvBegun>(&effect)) {
      tell_anew(begun->complete);
    } else if (const auto* batch = std::get_if<KvBatch>(&effect)) {
      take(batch->payload);
    } else if (const auto* asked = std::get_if<AskKvReplay>(&effect)) {
      owner.relay_.metrics().kv_replay();
      if (const Status sent = subscription_.ask_replay(asked->from); !sent) {
        log::warn(name + ": " + sent.error().message);
        order_.replay_failed(effects);
      }
    }
  }

  // An unreadable batch counts as missing. A replay would return the same batch.
  void take(std::string_view payload) {
    if (auto events = openai::decode_kv_events(payload)) {
      tell(std::move(*events));
    } else {
      cannot_read(events.error());
    }
  }

  // Each answer of a replay restarts the timeout.
  void arm() {
    owner.loop_.cancel(deadline_);
    if (order_.replaying()) {
      deadline_ = owner.loop_.call_at(owner.loop_.now() + kReplayTimeout, [this] {
        log::warn(name + " does not tell what was missed");
        step([&](auto& effects) { order_.replay_failed(effects); });
      });
    }
  }

  KvEventOrder order_;
  net::KvSubscription subscription_;
  net::TimerId deadline_;
};

KvEventsApi::KvEventsApi(net::EventLoop& loop, RelayApi& relay, const RouterConfig& config,
                         const std::vector<StaticWorker>& workers)
    : loop_(loop),
      relay_(relay),
      config_(config),
      addresses_(workers),
      client_(net::HttpClient::create(loop)) {
  relay_.on_workers_changed([this] { take_workers(); });
  relay_.on_learn_tokens([this](TokensQuestion question) { ask(std::move(question)); });
}

KvEventsApi::~KvEventsApi() = default;

// --- which workers to follow

void KvEventsApi::take_workers() {
  const auto& workers = relay_.core().workers().all();
  std::erase_if(engines_, [&](const auto& engine) { return !workers.contains(engine.first); });
  for (const auto& [id, worker] : workers) {
    if (engines_.contains(id) || !is_of_use(worker.entry)) {
      continue;
    }
    for (const auto& engine : engines_[id] = engines_of(id, worker.entry)) {
      if (const Status opened = engine->open(); !opened) {
        log::warn(worker.entry.name + ": " + opened.error().message);
      }
    }
  }
}

// A worker that describes itself is a pdjob worker, or says where its engine publishes.
KvEventsApi::Engines KvEventsApi::engines_of(WorkerId id, const net::WorkerEntry& worker) {
  Engines engines;
  if (worker.kv_events_port > 0) {
    const uint32_t ranks = std::clamp(worker.kv_ranks, 1U, KvKnowledge::kRanksMax);
    for (uint32_t rank = 0; rank < ranks; ++rank) {
      engines.push_back(std::make_unique<Publisher>(
          *this, id, worker.name + (ranks > 1 ? ", rank " + std::to_string(rank) : ""),
          publisher_of(worker, rank), rank));
    }
  } else if (!worker.engine_id.empty()) {
    engines.push_back(std::make_unique<OwnWorker>(*this, id, worker));
  } else {
    engines.push_back(
        std::make_unique<Publisher>(*this, id, worker.name, publisher_by_address(worker)));
  }
  return engines;
}

bool KvEventsApi::is_of_use(const net::WorkerEntry& worker) const {
  const bool own = worker.kv_events_port > 0 || worker.protocol == net::Protocol::kPdjob;
  const bool tells =
      worker.engine_id.empty() ? config_.kv_events.port > 0 : own && config_.kv_events.own_workers;
  return goes_by_prefixes(config_, worker.role) && tells;
}

net::KvPublisher KvEventsApi::publisher_by_address(const net::WorkerEntry& worker) const {
  net::KvPublisher publisher{.host = worker.host,
                             .port = config_.kv_events.port,
                             .replay_port = config_.kv_events.replay_port,
                             .topic = config_.kv_events.topic};
  const auto known = std::ranges::find_if(addresses_, [&](const StaticWorker& one) {
    return one.address.host == worker.host && one.address.port == worker.port;
  });
  if (known != addresses_.end() && known->kv_events_port > 0) {
    publisher.port = known->kv_events_port;
    publisher.replay_port = known->kv_replay_port;
  }
  return publisher;
}

// --- tokens of prompts

void KvEventsApi::ask(TokensQuestion question) {
  const WorkerId worker = question.worker;
  if (question.body.empty()) {
    relay_.submit(std::move(question.answer));
    return;
  }
  if (questions_waiting_ == limits::kTokenizationsQueuedMax) {
    relay_.metrics().tokenized(Tokenized::kDropped);
    relay_.submit(std::move(question.answer));
    return;
  }
  questions_waiting_ += 1;
  std::deque<TokensQuestion>& queue = questions_[worker];
  queue.push_back(std::move(question));
  if (queue.size() == 1) {
    ask_next(worker);
  }
}

void KvEventsApi::ask_next(WorkerId worker) {
  const auto queue = questions_.find(worker);
  if (queue->second.empty()) {
    questions_.erase(queue);
    return;
  }
  const Worker* known = relay_.core().workers().find(worker);
  const net::HttpAddress to = known == nullptr
                                  ? net::HttpAddress{}
                                  : net::HttpAddress{known->entry.host, known->entry.port};
  TokensQuestion& question = queue->second.front();
  net::fetch(loop_, *client_,
             {.to = to,
              .method = "POST",
              .target = "/tokenize",
              .header_lines = question.header_lines,
              .more_header_lines = known == nullptr ? std::string_view() : known->key_line,
              .body = std::move(question.body),
              .connect_timeout = config_.connect_timeout,
              .head_timeout = kTokenizeTimeout,
              .idle_timeout = kTokenizeTimeout},
             limits::kTokenizeReplyBytesMax, [this, worker](const Result<net::HttpReply>& reply) {
               std::deque<TokensQuestion>& asked = questions_.at(worker);
               TokensLearnt answer = std::move(asked.front().answer);
               asked.pop_front();
               questions_waiting_ -= 1;
               take_tokens(std::move(answer), reply);
               ask_next(worker);
             });
}

void KvEventsApi::take_tokens(TokensLearnt answer, const Result<net::HttpReply>& reply) {
  auto tokens = !reply ? Result<std::vector<uint32_t>>(reply.error())
                       : openai::parse_tokenize_reply(reply->status == 200 ? reply->body : "");
  relay_.metrics().tokenized(tokens ? Tokenized::kOk : Tokenized::kFailed);
  if (tokens) {
    answer.tokens = std::move(*tokens);
  } else if (warning_.opens(loop_.now())) {
    log::warn("POST /tokenize: " + (reply && reply->status != 200
                                        ? "a worker answers " + std::to_string(reply->status)
                                        : tokens.error().message));
  }
  relay_.submit(std::move(answer));
}

}  // namespace pdjob::router
