// ZmqSocket: one ZeroMQ socket in the event loop, and its context. I/O never blocks. Loop-bound.
//
// ZMQ_FD is edge-triggered and belongs to the socket's inner mailbox, which any zmq call may empty.
// So after every send and receive we ask for the true state (ZMQ_EVENTS), until no message is left.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "common/result.h"
#include "net/loop/event_loop.h"

namespace pdjob::net {

// Must outlive its sockets.
class ZmqContext {
 public:
  ZmqContext();
  ~ZmqContext();  // Does not wait: every socket has linger 0 and is closed.
  ZmqContext(const ZmqContext&) = delete;
  ZmqContext& operator=(const ZmqContext&) = delete;
  void* get() { return context_; }

 private:
  void* context_;
};

class ZmqSocket final : public FdHandler {
 public:
  using Frames = std::vector<std::string>;
  class Reader {
   public:
    // `user` is the peer's name from ZAP; empty without ZAP.
    virtual void on_frames(Frames frames, const std::string& user) = 0;

   protected:
    ~Reader() = default;
  };

  // `type` and the options are those of zmq.h.
  ZmqSocket(EventLoop& loop, ZmqContext& context, int type, Reader& reader);
  ~ZmqSocket();
  ZmqSocket(const ZmqSocket&) = delete;
  ZmqSocket& operator=(const ZmqSocket&) = delete;

  void set(int option, int value) { set_bytes(option, &value, sizeof value); }
  void set(int option, int64_t value) { set_bytes(option, &value, sizeof value); }
  void set(int option, const std::string& value) { set_bytes(option, value.data(), value.size()); }

  Status bind(const std::string& endpoint);
  Status connect(const std::string& endpoint);
  // Reports its connections at `endpoint` (inproc://...), with the `events` of zmq_socket_monitor.
  Status monitor(const std::string& endpoint, int events);
  std::string last_endpoint();

  // Starts reading.
  Status watch();

  enum class Sent { kQueued, kGone, kFull };
  Sent send(std::span<const std::string> frames);

  void on_ready(uint32_t epoll_events) override;

 private:
  void set_bytes(int option, const void* value, size_t size);
  bool readable();
  // A message that a send finds readable is read later, not inside the sender's call.
  void read_later();
  void read_all();
  bool read_one();

  EventLoop& loop_;
  Reader& reader_;
  void* socket_;
  int fd_ = -1;
  bool reading_ = false;
  std::optional<TimerId> reading_later_;
};

}  // namespace pdjob::net
