// KvEventsApi receives the prefix cache events of engines and passes them to the core in order
// (kv_event_order.h). It also asks engines for the tokens of prompts: one prompt of an engine at a
// time, after the prompt itself was sent, so that no request waits. Loop-bound.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <vector>

#include "net/http/http_client.h"
#include "net/loop/event_loop.h"
#include "net/zeromq/kv_subscription.h"
#include "net/zeromq/zeromq_socket.h"
#include "openai/kv_events/kv_stream.h"
#include "router/members/static_workers.h"
#include "router/relay/relay_api.h"

namespace pdjob::router {

class KvEventsApi {
 public:
  // Requires: `config` has kv_events.
  KvEventsApi(net::EventLoop& loop, RelayApi& relay, const RouterConfig& config,
              const std::vector<StaticWorker>& workers);
  ~KvEventsApi();
  KvEventsApi(const KvEventsApi&) = delete;
  KvEventsApi& operator=(const KvEventsApi&) = delete;

 private:
  class Engine;
  class OwnWorker;
  class Publisher;

  void take_workers();
  using Engines = std::vector<std::unique_ptr<Engine>>;  // One for each of its ranks.
  Engines engines_of(WorkerId id, const net::WorkerEntry& worker);
  net::KvPublisher publisher_by_address(const net::WorkerEntry& worker) const;
  bool is_of_use(const net::WorkerEntry& worker) const;

  void ask(TokensQuestion question);
  void ask_next(WorkerId worker);
  void take_tokens(TokensLearnt answer, const Result<net::HttpReply>& reply);

  net::EventLoop& loop_;
  RelayApi& relay_;
  const RouterConfig config_;
  const std::vector<StaticWorker> addresses_;
  net::ZmqContext context_;
  const std::unique_ptr<net::HttpClient> client_;
  std::map<WorkerId, Engines> engines_;
  std::map<WorkerId, std::deque<TokensQuestion>> questions_;  // The first of each is being asked.
  size_t questions_waiting_ = 0;
  WarnGate warning_{std::chrono::seconds(10)};
};

}  // namespace pdjob::router
