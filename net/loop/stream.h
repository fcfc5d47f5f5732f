// Stream: a byte stream to a peer, and Listener: where such streams arrive. Loop::connect() and
// Loop::listen() make them: EventLoop those of TCP (tcp_stream.h), a simulation its own
// (tests/simulation). Loop-bound.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

#include <sys/types.h>

#include "common/result.h"

namespace pdjob::net {

// Called when a stream or a descriptor is ready. Edge-triggered: read (write) until EAGAIN, or you
// will not be called again.
class FdHandler {
 public:
  virtual void on_ready(uint32_t epoll_events) = 0;

 protected:
  ~FdHandler() = default;
};

class Stream {
 public:
  virtual ~Stream() = default;  // Closes it; its handler is not called any more.

  // Calls the handler for EPOLLIN, EPOLLOUT and EPOLLRDHUP. The handler is not owned.
  virtual Status watch(FdHandler& handler) = 0;
  // Why connecting failed, as an errno; 0: it did not. Requires: the handler was called.
  virtual int connect_error() const = 0;

  // Both return at once: the bytes moved, or -errno. read() returns 0 at the end of the stream.
  virtual ssize_t read(std::span<char> to) = 0;
  // At most kSendPiecesMax pieces.
  virtual ssize_t write(std::span<const std::string_view> pieces) = 0;

  // The peer reads the end of the stream after all that was written.
  virtual void finish_writing() = 0;
  // When it is closed, the peer gets an error, not the end of the stream.
  virtual void reset_when_closed() = 0;
};

inline constexpr size_t kSendPiecesMax = 8;

class Listener {
 public:
  virtual ~Listener() = default;  // Closes it.

  // Calls the handler when streams have arrived. The handler is not owned.
  virtual Status watch(FdHandler& handler) = 0;
  // Returns a stream that has arrived; null: none has. kOverloaded: out of descriptors, try again
  // later.
  virtual Result<std::unique_ptr<Stream>> accept() = 0;
  virtual uint16_t port() const = 0;
};

}  // namespace pdjob::net
