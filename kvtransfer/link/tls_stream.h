// TlsStream: TLS 1.3 over the connected, nonblocking socket of a link. Both ends derive the same
// key from their job's token: an external PSK, combined with an ephemeral key exchange. So there
// are no certificates to distribute. A peer without the token fails at the first message.
//
// Reading goes straight to the caller's memory.
#pragma once

#include <span>
#include <string>

#include <sys/uio.h>

#include "common/result.h"
#include "net/tls/tls_session.h"

namespace pdjob::kvtransfer {

using net::TlsContext;
using net::TlsKey;
using net::TlsSide;

// Loop-bound.
class TlsStream final : net::TlsWire {
 public:
  // The handshake begins with the first read or write. `socket` is not owned.
  TlsStream(const TlsContext& context, int socket, TlsSide side)
      : socket_(socket), session_(context, *this, side) {}

  // Like recvmsg() and sendmsg() with errno: EAGAIN, or EPROTO, for which error() has the reason. A
  // stream that was cut off reads like a closed one: only the link's messages show whether they are
  // complete.
  ssize_t read(std::span<const iovec> pieces);
  // The bytes it takes are sent once flush() returns true, now or later.
  ssize_t write(std::span<const iovec> pieces);
  // False, with errno as above: call again when the socket is writable or has been read.
  bool flush();
  Error error() const;
  // Returns a value that only the two ends of this stream know (RFC 9266). Requires: something was
  // read.
  std::string channel() const { return session_.channel(); }

 private:
  ssize_t wire_read(std::span<char> to) override;
  ssize_t wire_write(std::string_view bytes) override;

  const int socket_;
  net::TlsSession session_;
};

}  // namespace pdjob::kvtransfer
