// LinkSocket: the socket of one link, plain or under TLS. It moves bytes, and file descriptors with
// them, like recvmsg() and sendmsg(). It recognizes only the first message of a link. Loop-bound.
#pragma once

#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include <sys/uio.h>

#include "common/result.h"
#include "kvtransfer/link/tls_stream.h"
#include "kvtransfer/rows/unique_fd.h"

namespace pdjob::kvtransfer {

class LinkSocket {
 public:
  // `tls` outlives this socket; null: a plain socket.
  LinkSocket(UniqueFd socket, const TlsContext* tls, TlsSide side);

  const UniqueFd& fd() const { return socket_; }
  bool encrypted() const { return tls_ != nullptr; }

  // Peeks at the peer's first bytes, without taking them. Empty: too few bytes have come.
  enum class Greeting { kPlain, kTls };
  std::optional<Greeting> greeting() const;
  // Prepares the one message that both kinds of peers understand: why the peer is refused. Unread
  // bytes are dropped, because closing a socket with unread bytes would discard that message.
  void turn_away();

  // Returns the bytes read; 0: closed by the peer; -1 with errno. Appends received descriptors to
  // `shared`.
  ssize_t read(std::span<iovec> pieces, std::deque<UniqueFd>& shared);
  // Returns the bytes taken, or -1 with errno. A valid `shared` goes along; plain sockets only.
  // kMore: the next write may leave with this one.
  enum class Then { kNothing, kMore };
  ssize_t write(std::span<const iovec> pieces, const UniqueFd& shared, Then then = Then::kNothing);
  // True: the kernel has all bytes that write() took. False: errno as above.
  bool flush() { return !tls_ || tls_->flush(); }

  // Returns a value that only the two ends know; empty: not encrypted. Requires: something was
  // read.
  std::string channel() const { return tls_ ? tls_->channel() : std::string(); }

  // Explains the errno of the last call.
  Error error() const;

 private:
  UniqueFd socket_;
  std::unique_ptr<TlsStream> tls_;
};

// The maximum number of received descriptors that may wait; no correct link has more. Beyond that,
// errno is EPROTO.
inline constexpr size_t kSharedWaitingMax = 16;

}  // namespace pdjob::kvtransfer
