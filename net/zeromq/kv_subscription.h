// KvSubscription: the live events of one engine's prefix cache (kv_events.h). Batches with
// ascending numbers come from its PUB socket, and past ones on demand from its ROUTER socket
// (ZmqEventPublisher in vllm/distributed/kv_events.py of vllm-project/vllm). It reconnects by
// itself and reports that. The handler must detect gaps between numbers. Loop-bound.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "common/result.h"
#include "net/zeromq/zeromq_socket.h"

namespace pdjob::net {

struct KvPublisher {
  std::string host;
  uint16_t port = 0;
  uint16_t replay_port = 0;  // 0: no replay of past batches.
  std::string topic;         // Prefix of the wanted topics.
};

class KvSubscription {
 public:
  // These must not end the subscription.
  class Handler {
   public:
    virtual void on_connected() = 0;
    virtual void on_disconnected() = 0;
    virtual void on_batch(uint64_t number, std::string payload) = 0;
    virtual void on_replayed(uint64_t number, std::string payload) = 0;
    virtual void on_replay_end() = 0;

   protected:
    ~Handler() = default;
  };

  KvSubscription(EventLoop& loop, ZmqContext& context, Handler& handler, KvPublisher publisher);
  ~KvSubscription();
  KvSubscription(const KvSubscription&) = delete;
  KvSubscription& operator=(const KvSubscription&) = delete;

  Status open();
  // Replays all batches from this number on that the engine still has, then reports the end. Drops
  // the rest of an earlier replay. Requires: a replay_port.
  Status ask_replay(uint64_t from);

 private:
  class Events;
  class Monitor;
  class Replay;

  EventLoop& loop_;
  ZmqContext& context_;
  Handler& handler_;
  const KvPublisher publisher_;
  std::unique_ptr<Events> events_;
  std::unique_ptr<Monitor> monitor_;
  std::unique_ptr<Replay> replay_;
  std::unique_ptr<Replay> ended_;  // May be the caller of ask_replay().
};

}  // namespace pdjob::net
