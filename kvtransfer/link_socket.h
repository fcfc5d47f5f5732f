// LinkSocket: the socket of one link, plain or under TLS: bytes with the file descriptors that come
// along, in the way of recvmsg() and sendmsg(). It knows no messages, but for what a first one
// looks like. Loop-bound.
#pragma once

#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include <sys/uio.h>

#include "common/result.h"
#include "kvtransfer/tls_stream.h"
#include "kvtransfer/unique_fd.h"

namespace pdjob::kvtransfer {

class LinkSocket {
 public:
  // `tls` is null for a plain socket, and else outlives this one.
  LinkSocket(UniqueFd socket, const TlsContext* tls, TlsSide side);

  const UniqueFd& fd() const { return socket_; }
  bool encrypted() const { return tls_ != nullptr; }

  // What the peer speaks first, looked at and not taken. None: it has not said enough yet.
  enum class Greeting { kPlain, kTls };
  std::optional<Greeting> greeting() const;
  // For the one message that both kinds of peers understand: why it is turned away. What has come
  // is dropped, for a socket that is closed with unread bytes would take that message back.
  void turn_away();

  // Bytes; 0: closed by the peer; -1 with errno. Those that came go to the end of `shared`.
  ssize_t read(std::span<iovec> pieces, std::deque<UniqueFd>& shared);
  // Bytes taken, or -1 with errno. `shared` goes along if it is valid: of plain sockets only.
  // kMore: what is written next may leave with it.
  enum class Then { kNothing, kMore };
  ssize_t write(std::span<const iovec> pieces, const UniqueFd& shared, Then then = Then::kNothing);
  // Of what write() has taken, all is with the kernel. False: with errno as above.
  bool flush() { return !tls_ || tls_->flush(); }

  // A value that only its two ends know, once something has been read; empty: not encrypted.
  std::string channel() const { return tls_ ? tls_->channel() : std::string(); }

  // What the errno of the last call means.
  Error error() const;

 private:
  UniqueFd socket_;
  std::unique_ptr<TlsStream> tls_;
};

// More at once is no link's doing: that many, and errno is EPROTO.
inline constexpr size_t kSharedWaitingMax = 16;

}  // namespace pdjob::kvtransfer
