#include "router/async/async_caller.h"

#include <algorithm>
#include <utility>

#include "common/limits.h"
#include "common/log.h"
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

Result<std::unique_ptr<AsyncCaller>> AsyncCaller::open(
    net::Loop& loop, AsyncStore& store, RouterMetrics& metrics, const AsyncConfig& config,
    std::unique_ptr<net::OutboundClient> client) {
  std::optional<WebhookSecret> secret;
  if (!config.callbacks.secret_file.empty()) {
    PDJOB_TRY(secret, WebhookSecret::read(config.callbacks.secret_file));
  }
  return std::unique_ptr<AsyncCaller>(
      new AsyncCaller(loop, store, metrics, config, std::move(secret), std::move(client)));
}

AsyncCaller::AsyncCaller(net::Loop& loop, AsyncStore& store, RouterMetrics& metrics,
                         const AsyncConfig& config, std::optional<WebhookSecret> secret,
                         std::unique_ptr<net::OutboundClient> client)
    : loop_(loop),
      store_(store),
      metrics_(metrics),
      config_(config),
      secret_(std::move(secret)),
      receivers_(receivers_of(config.callbacks)),
      client_(std::move(client)),
      calls_(config.callbacks, config.results_max, loop.entropy()) {}

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
  const auto wait = std::clamp<int64_t>(callback.due_at - loop_.unix_seconds(), 0,
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
    store_.run([this, call = *call,
                ended_since = oldest_kept(loop_, config_.ttl)](AsyncDatabase& database) {
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
  const int64_t now = loop_.unix_seconds();
  net::OutboundCall post{
      .to = target->url,
      .headers = {"Content-Type: application/json", "webhook-id: " + call.id,
                  "webhook-timestamp: " + std::to_string(now)},
      .body = std::move(body),
      .connect_timeout = std::min(kConnectTimeoutMax, config_.callbacks.timeout),
      .timeout = config_.callbacks.timeout,
      .reply_bytes_max = kReplyBytesMax,
      .may_connect = [this, host = target->url.address.host](const net::IpAddress& address) {
        return may_connect(host, address, receivers_);
      }};
  if (secret_) {
    post.headers.push_back("webhook-signature: " + secret_->sign(call.id, now, post.body));
  }
  client_->post(std::move(post), [this, call, to = target->url.address.to_string()](
                                     const Result<net::OutboundReply>& reply) {
    // Once a status arrived, it counts, even if the rest of the reply failed.
    const std::string how =
        reply ? "status " + std::to_string(reply->status) : reply.error().message;
    ended(call, to + ": " + how, reply && reply->status >= 200 && reply->status < 300);
  });
}

void AsyncCaller::ended(const AsyncCallbacks::Call& call, const std::string& how, bool taken) {
  const AsyncCallbacks::Ended ended = calls_.end(call.number, taken, loop_.now());
  const std::string times = " (attempt " + std::to_string(ended.attempts) + ")";
  switch (ended.outcome) {
    case AsyncCallbacks::Outcome::kDelivered:
      metrics_.called_back(CallbackOutcome::kDelivered);
      note(call.id, CallbackStatus::kDelivered, ended.attempts, 0);
      break;
    case AsyncCallbacks::Outcome::kAgain:
      metrics_.called_back(CallbackOutcome::kRetried);
      warn(call.id + " was not taken by " + how + times);
      note(call.id, CallbackStatus::kPending, ended.attempts,
           loop_.unix_seconds() + whole_seconds(ended.wait));
      break;
    case AsyncCallbacks::Outcome::kFailed:
      metrics_.called_back(CallbackOutcome::kFailed);
      warn(call.id + " was never taken by " + how + times);
      note(call.id, CallbackStatus::kFailed, ended.attempts, 0);
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
