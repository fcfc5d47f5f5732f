// KvSubscription: the events of one engine's prefix cache as they come (kv_events.h): batches with
// ascending numbers from its PUB socket, and on demand those of the past from its ROUTER socket
// (ZmqEventPublisher in vllm/distributed/kv_events.py of vllm-project/vllm). It connects again by
// itself, and says so. What is missing between two numbers is not its business. Loop-bound.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "common/result.h"
#include "net/zeromq_socket.h"

namespace pdjob::net {

struct KvPublisher {
  std::string host;
  uint16_t port = 0;
  uint16_t replay_port = 0;  // 0: it tells nothing of the past.
  std::string topic;         // What is wanted begins with it.
};

class KvSubscription {
 public:
  // None of these may end the subscription.
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
  // All batches from this number on that are still known, and then their end; nothing more comes of
  // what was asked before. Requires: a replay_port.
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
  std::unique_ptr<Replay> ended_;  // May be what asks for the next one.
};

}  // namespace pdjob::net
