#include "router/async/async_caller.h"

#include <algorithm>
#include <utility>

#include "common/limits.h"
#include "common/log.h"
#include "common/os/real_clock.h"
#include "common/random.h"
#include "router/async/async_body.h"

namespace pdjob::router {
namespace {

constexpr Duration kConnectTimeoutMax = std::chrono::seconds(2);
// The reply is not read; a longer one is cut off.
constexpr size_t kReplyBytesMax = 64 * limits::kKiB;

std::vector<CallbackReceiver> receivers_of(const CallbackConfig& config) {
  std::vector<CallbackReceiver> receivers;
  for (const std::string& text : config.allowed) {
    receivers.push_back(*parse_callback_receiver(text));
  }
  return receivers;
}

int64_t whole_seconds(Duration duration) {
  return std::chrono::ceil<std::chrono::seconds>(duration).count();
}

}  // namespace

// One call under way. It ends exactly once: by its reply, an error or its timeout.
class AsyncCaller::Attempt final : public net::HttpCallHandler {
 public:
  Attempt(AsyncCaller& caller, uint64_t number, std::string id, net::HttpClient& client)
      : id_(std::move(id)), caller_(caller), number_(number), client_(client) {}
  ~Attempt() { caller_.loop_.cancel(deadline_); }
  Attempt(const Attempt&) = delete;
  Attempt& operator=(const Attempt&) = delete;

  void start(net::HttpCall call, Duration timeout) {
    to_ = call.to.to_string();
    deadline_ = caller_.loop_.call_at(caller_.loop_.now() + timeout, [this] { cut("timeout"); });
    call_ = client_.start(std::move(call), *this);
  }

  const std::string& id() const { return id_; }

 private:
  void on_head(net::CallId /*call*/, const net::HttpReplyHead& head) override {
    status_ = head.status;
  }
  void on_body(net::CallId /*call*/, std::string_view raw) override {
    bytes_ += raw.size();
    if (bytes_ > kReplyBytesMax) {
      cut("a long reply");
    }
  }
  void on_end(net::CallId /*call*/) override { end(""); }
  void on_error(net::CallId /*call*/, const Error& error) override { end(error.message); }

  void cut(const std::string& why) {
    client_.cancel(call_);
    end(why);
  }
  // Once a status arrived, it counts, even if the rest of the reply fails.
  void end(const std::string& error) {
    const std::string how = status_ == 0 ? error : "status " + std::to_string(status_);
    // Destroys this object.
    caller_.ended(number_, to_ + ": " + how, status_ >= 200 && status_ < 300);
  }

  const std::string id_;
  AsyncCaller& caller_;
  const uint64_t number_;
  net::HttpClient& client_;
  std::string to_;
  net::CallId call_;
  net::TimerId deadline_;
  int status_ = 0;  // 0: no head yet.
  size_t bytes_ = 0;
};

Result<std::unique_ptr<AsyncCaller>> AsyncCaller::open(net::EventLoop& loop, AsyncStore& store,
                                                       RouterMetrics& metrics,
                                                       const AsyncConfig& config) {
  std::optional<WebhookSecret> secret;
  if (!config.callbacks.secret_file.empty()) {
    PDJOB_TRY(secret, WebhookSecret::read(config.callbacks.secret_file));
  }
  return std::unique_ptr<AsyncCaller>(
      new AsyncCaller(loop, store, metrics, config, std::move(secret)));
}

AsyncCaller::AsyncCaller(net::EventLoop& loop, AsyncStore& store, RouterMetrics& metrics,
                         const AsyncConfig& config, std::optional<WebhookSecret> secret)
    : loop_(loop),
      store_(store),
      metrics_(metrics),
      config_(config),
      secret_(std::move(secret)),
      receivers_(receivers_of(config.callbacks)),
      calls_(config.callbacks, config.results_max, entropy()) {
  for (size_t i = 0; i < receivers_.size(); ++i) {
    clients_.push_back(net::HttpClient::create(loop));
  }
}

AsyncCaller::~AsyncCaller() { loop_.cancel(timer_); }

Status AsyncCaller::check(std::string_view url) {
  const auto target = find_callback_target(url, receivers_);
  if (target) {
    return ok();
  }
  metrics_.called_back(CallbackOutcome::kRefused);
  warn("refused: " + target.error().message);
  return target.error();
}

void AsyncCaller::add(const PendingCallback& callback) {
  const auto target = find_callback_target(callback.url, receivers_);
  if (!target) {  // The job file has changed since.
    metrics_.called_back(CallbackOutcome::kFailed);
    warn(callback.id + ": " + target.error().message);
    note(callback.id, CallbackStatus::kFailed, callback.attempts, 0);
    return;
  }
  // The system clock may have been set since, so the wait is limited to `wait_max`.
  const auto wait = std::clamp<int64_t>(callback.due_at - unix_seconds(), 0,
                                        whole_seconds(config_.callbacks.wait_max));
  calls_.add(callback.id, callback.tenant, target->receiver, callback.attempts,
             loop_.now() + std::chrono::seconds(wait));
  start_all();
}

void AsyncCaller::drain() {
  draining_ = true;
  loop_.cancel(timer_);
}

void AsyncCaller::when_idle(std::function<void()> then) {
  if (calls_.running() == 0) {
    then();
  } else {
    when_idle_ = std::move(then);
  }
}

void AsyncCaller::start_all() {
  loop_.cancel(timer_);
  if (draining_) {
    if (calls_.running() == 0 && when_idle_) {
      std::exchange(when_idle_, nullptr)();
    }
    return;
  }
  while (const auto call = calls_.start_next(loop_.now())) {
    store_.run(
        [this, call = *call, ended_since = oldest_kept(config_.ttl)](AsyncDatabase& database) {
          auto found = database.find(call.id, std::nullopt, ended_since);
          return [this, call, found = std::move(found)] {
            if (found) {
              start(call, *found);
            } else {
              warn(call.id + ": the store failed: " + found.error().message);
              forget(call.number);  // The next router may retry.
            }
          };
        });
  }
  if (const Instant next = calls_.next_due(); next != kNever) {
    timer_ = loop_.call_at(next, [this] { start_all(); });
  }
}

void AsyncCaller::start(const AsyncCallbacks::Call& call, const std::optional<AsyncFound>& found) {
  if (!found || !found->answer || !found->callback) {
    forget(call.number);  // It was deleted, or is too old.
    return;
  }
  const auto target = find_callback_target(found->callback->url, receivers_);
  std::string body = async_body(call.id, *found, "");
  const int64_t now = unix_seconds();
  std::string headers =
      "Content-Type: application/json\r\nConnection: close\r\nwebhook-id: " + call.id +
      "\r\nwebhook-timestamp: " + std::to_string(now) + "\r\n";
  if (secret_) {
    headers += "webhook-signature: " + secret_->sign(call.id, now, body) + "\r\n";
  }
  const Duration timeout = config_.callbacks.timeout;
  auto attempt =
      std::make_unique<Attempt>(*this, call.number, call.id, *clients_[target->receiver]);
  Attempt& started = *attempt;
  attempts_.emplace(call.number, std::move(attempt));
  started.start({.to = target->to,
                 .target = target->path,
                 .header_lines = headers,
                 .body = std::move(body),
                 .connect_timeout = std::min(kConnectTimeoutMax, timeout)},
                timeout);
}

void AsyncCaller::ended(uint64_t number, const std::string& how, bool taken) {
  const auto attempt = std::move(attempts_.extract(number).mapped());
  const AsyncCallbacks::Ended ended = calls_.end(number, taken, loop_.now());
  const std::string times = " (attempt " + std::to_string(ended.attempts) + ")";
  switch (ended.outcome) {
    case AsyncCallbacks::Outcome::kDelivered:
      metrics_.called_back(CallbackOutcome::kDelivered);
      note(attempt->id(), CallbackStatus::kDelivered, ended.attempts, 0);
      break;
    case AsyncCallbacks::Outcome::kAgain:
      metrics_.called_back(CallbackOutcome::kRetried);
      warn(attempt->id() + " was not taken by " + how + times);
      note(attempt->id(), CallbackStatus::kPending, ended.attempts,
           unix_seconds() + whole_seconds(ended.wait));
      break;
    case AsyncCallbacks::Outcome::kFailed:
      metrics_.called_back(CallbackOutcome::kFailed);
      warn(attempt->id() + " was never taken by " + how + times);
      note(attempt->id(), CallbackStatus::kFailed, ended.attempts, 0);
      break;
  }
  start_all();
}

void AsyncCaller::forget(uint64_t number) {
  metrics_.called_back(CallbackOutcome::kForgotten);
  calls_.forget(number);
  start_all();
}

void AsyncCaller::note(const std::string& id, CallbackStatus status, uint32_t attempts,
                       int64_t due_at) {
  store_.run([this, id, status, attempts, due_at](AsyncDatabase& database) -> AsyncStore::Then {
    const Status noted = database.note_callback(id, status, attempts, due_at);
    if (noted) {
      return {};
    }
    return [this, id, noted] { warn(id + ": the store failed: " + noted.error().message); };
  });
}

void AsyncCaller::warn(const std::string& text) {
  if (warning_.opens(loop_.now())) {
    log::warn("callback: " + text);
  }
}

}  // namespace pdjob::router
