// LinkSocket: the byte stream of one link, with file descriptors beside it. StreamSocket is a real
// one; a simulation has its own (tests/simulation). Loop-bound.
#pragma once

#include <deque>
#include <optional>
#include <span>
#include <string>

#include <sys/types.h>
#include <sys/uio.h>

#include "common/files/fd.h"
#include "common/result.h"
#include "net/loop/event_loop.h"

namespace pdjob::kvtransfer {

class LinkSocket {
 public:
  virtual ~LinkSocket() = default;  // Closes it.

  // Calls the handler when bytes may be read or written, as EventLoop::watch() does, until
  // unwatch() or the end of the socket.
  virtual Status watch(net::FdHandler& handler) = 0;
  virtual void unwatch() = 0;

  // The outcome of connecting, once the handler was called. Also an error: a peer that may not be
  // talked to.
  virtual Status connected() const = 0;
  // True: the peer's end is closed, even if some of its bytes are still unread. Always false if the
  // peer may be on another machine.
  virtual bool peer_has_closed() const = 0;
  // From now on peer_is_dying() can tell. kUnsupported: the peer's process cannot be seen.
  virtual Status follow_peer() = 0;
  // True: the end of the peer's process has begun, and it is not gone yet: its devices may still
  // write our memory (PeerProcess).
  virtual bool peer_is_dying() const = 0;
  // The peer reads the end of the stream after all that was written.
  virtual void finish_writing() = 0;

  virtual bool encrypted() const = 0;
  // Peeks at the peer's first bytes, without taking them. Empty: too few bytes have come.
  enum class Greeting { kPlain, kTls };
  virtual std::optional<Greeting> greeting() const = 0;
  // Prepares the one message that both kinds of peers understand: why the peer is refused. Unread
  // bytes are dropped, because closing a socket with unread bytes would discard that message.
  virtual void turn_away() = 0;
  // Returns a value that only the two ends know; empty: not encrypted. Requires: something was
  // read.
  virtual std::string channel() const = 0;

  // Returns the bytes read; 0: closed by the peer; -1 with errno, as recvmsg() does. Appends
  // received descriptors to `shared`.
  virtual ssize_t read(std::span<iovec> pieces, std::deque<Fd>& shared) = 0;
  // Returns the bytes taken, or -1 with errno, as sendmsg() does. A valid `shared` goes along;
  // plain sockets only. kMore: the next write may leave with this one.
  enum class Then { kNothing, kMore };
  virtual ssize_t write(std::span<const iovec> pieces, const Fd& shared, Then then) = 0;
  // True: nothing that write() took waits here. False: errno as above.
  virtual bool flush() = 0;
  // Explains the errno of the last call.
  virtual Error error() const = 0;
};

}  // namespace pdjob::kvtransfer
