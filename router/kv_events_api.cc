#include "router/kv_events_api.h"

#include <algorithm>
#include <utility>
#include <variant>

#include "common/log.h"
#include "net/kv_limits.h"
#include "net/tokenize_reply.h"
#include "router/kv_event_order.h"

namespace pdjob::router {
namespace {

constexpr Duration kReplayTimeout = std::chrono::seconds(5);  // Until its next batch.
constexpr Duration kTokenizeTimeout = std::chrono::seconds(10);

}  // namespace

// One worker's events.
class KvEventsApi::Engine final : public net::KvSubscription::Handler {
 public:
  Engine(KvEventsApi& owner, WorkerId id, std::string name, const net::KvPublisher& publisher)
      : owner_(owner),
        id_(id),
        name_(std::move(name)),
        order_(publisher.replay_port > 0),
        subscription_(owner.loop_, owner.context_, *this, publisher) {}
  ~Engine() { owner_.loop_.cancel(deadline_); }

  Status open() {
    tell_anew(/*complete=*/false);
    return subscription_.open();
  }

  void on_connected() override {
    log::info(name_ + " tells what is in its prefix cache");
    step([&](auto& effects) { order_.connected(effects); });
  }
  void on_disconnected() override {
    log::warn(name_ + " does not tell any longer what is in its prefix cache");
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
    owner_.relay_.metrics().kv_gaps(order_.gaps() - gaps);
    for (size_t i = 0; i < effects.size(); ++i) {  // They may become more.
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
      owner_.relay_.metrics().kv_replay();
      if (const Status sent = subscription_.ask_replay(asked->from); !sent) {
        log::warn(name_ + ": " + sent.error().message);
        order_.replay_failed(effects);
      }
    }
  }

  // What cannot be read is as good as missing, and would be no other if it were told again.
  void take(const std::string& payload) {
    auto events = net::decode_kv_events(payload);
    if (!events) {
      log::warn(name_ + ": " + events.error().message + "; what it told before is forgotten");
      owner_.relay_.metrics().kv_gaps(1);
      tell_anew(/*complete=*/false);
      return;
    }
    owner_.relay_.metrics().kv_batch();
    owner_.relay_.submit(KvTold{id_, std::move(*events)});
  }

  void tell_anew(bool complete) { owner_.relay_.submit(KvToldAnew{id_, complete}); }

  // Each answer of a replay gives the next one time.
  void arm() {
    owner_.loop_.cancel(deadline_);
    if (order_.replaying()) {
      deadline_ = owner_.loop_.call_at(owner_.loop_.now() + kReplayTimeout, [this] {
        log::warn(name_ + " does not tell what was missed");
        step([&](auto& effects) { order_.replay_failed(effects); });
      });
    }
  }

  KvEventsApi& owner_;
  const WorkerId id_;
  const std::string name_;
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

// --- whom to listen to

void KvEventsApi::take_workers() {
  const auto& workers = relay_.core().workers().all();
  std::erase_if(engines_, [&](const auto& engine) { return !workers.contains(engine.first); });
  for (const auto& [id, worker] : workers) {
    if (engines_.contains(id) || !is_of_use(worker.entry)) {
      continue;
    }
    auto& engine = engines_[id] =
        std::make_unique<Engine>(*this, id, worker.entry.name, publisher_of(worker.entry));
    if (const Status opened = engine->open(); !opened) {
      log::warn(worker.entry.name + ": " + opened.error().message);
    }
  }
}

// Who describes itself is of our own kind, and keeps no prefix cache.
bool KvEventsApi::is_of_use(const net::WorkerEntry& worker) const {
  const PolicyKind policy =
      worker.role == net::Role::kPrefill ? config_.prefill_policy : config_.decode_policy;
  return policy == PolicyKind::kPrefixAware && worker.engine_id.empty();
}

net::KvPublisher KvEventsApi::publisher_of(const net::WorkerEntry& worker) const {
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
                       : net::parse_tokenize_reply(reply->status == 200 ? reply->body : "");
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
