// AsyncCaller calls the clients of asynchronous requests back: it sends the answer by HTTP to a
// receiver that the job file lists, until the receiver takes it. Pending callbacks are in the
// store, so the next router continues with them. If the store has no note of a delivered call, the
// receiver is called again. Redirects are not followed, and the address that a name leads to must
// be allowed, too (callback_url.h). Loop-bound.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/log.h"
#include "net/loop/loop.h"
#include "net/outbound/outbound_client.h"
#include "router/async/async_callbacks.h"
#include "router/async/async_store.h"
#include "router/async/webhook_secret.h"
#include "router/config/callback_url.h"
#include "router/relay/router_metrics.h"

namespace pdjob::router {

class AsyncCaller {
 public:
  static Result<std::unique_ptr<AsyncCaller>> open(net::Loop& loop, AsyncStore& store,
                                                   RouterMetrics& metrics,
                                                   const AsyncConfig& config,
                                                   std::unique_ptr<net::OutboundClient> client);
  ~AsyncCaller();
  AsyncCaller(const AsyncCaller&) = delete;
  AsyncCaller& operator=(const AsyncCaller&) = delete;

  // Fails if `url` may not be called. The error is for the client, and is logged.
  Status check(std::string_view url);
  // Requires: the answer is stored.
  void add(const PendingCallback& callback);
  // Starts no more calls.
  void drain();
  // Calls `then` once all started calls have ended. Call once, after drain().
  void when_idle(std::function<void()> then);

  const AsyncCallbacks& calls() const { return calls_; }

 private:
  AsyncCaller(net::Loop& loop, AsyncStore& store, RouterMetrics& metrics, const AsyncConfig& config,
              std::optional<WebhookSecret> secret, std::unique_ptr<net::OutboundClient> client);

  void start_all();
  void start(const AsyncCallbacks::Call& call, const std::optional<AsyncFound>& found);
  void ended(const AsyncCallbacks::Call& call, const std::string& how, bool taken);
  void forget(uint64_t number);
  void note(const std::string& id, CallbackStatus status, uint32_t attempts, int64_t due_at);
  void warn(const std::string& text);

  net::Loop& loop_;
  AsyncStore& store_;
  RouterMetrics& metrics_;
  const AsyncConfig config_;
  const std::optional<WebhookSecret> secret_;
  std::vector<CallbackReceiver> receivers_;
  const std::unique_ptr<net::OutboundClient> client_;
  AsyncCallbacks calls_;
  bool draining_ = false;
  std::function<void()> when_idle_;
  WarnGate warning_{std::chrono::seconds(10)};
  net::TimerId timer_;
};

}  // namespace pdjob::router
