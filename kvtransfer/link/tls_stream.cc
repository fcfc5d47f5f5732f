#include "kvtransfer/link/tls_stream.h"

#include <cerrno>

#include <sys/socket.h>

namespace pdjob::kvtransfer {

ssize_t TlsStream::wire_read(std::span<char> to) {
  ssize_t got = -1;
  do {
    got = ::recv(socket_, to.data(), to.size(), MSG_DONTWAIT);
  } while (got < 0 && errno == EINTR);
  return got < 0 ? -errno : got;
}

ssize_t TlsStream::wire_write(std::string_view bytes) {
  ssize_t sent = -1;
  do {
    sent = ::send(socket_, bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  } while (sent < 0 && errno == EINTR);
  return sent < 0 ? -errno : sent;
}

ssize_t TlsStream::read(std::span<const iovec> pieces) {
  ssize_t total = 0;
  for (const iovec& piece : pieces) {
    const ssize_t got = session_.read({static_cast<char*>(piece.iov_base), piece.iov_len});
    if (got < 0 && total == 0) {
      errno = static_cast<int>(-got);
      return -1;
    }
    total += got > 0 ? got : 0;
    if (got < static_cast<ssize_t>(piece.iov_len)) {
      break;  // The next call reports why.
    }
  }
  return total;
}

ssize_t TlsStream::write(std::span<const iovec> pieces) {
  if (!flush()) {
    return -1;
  }
  size_t taken = 0;
  for (const iovec& piece : pieces) {
    taken += session_.take({static_cast<const char*>(piece.iov_base), piece.iov_len});
  }
  if (!flush() && errno == EPROTO) {
    return -1;
  }
  return static_cast<ssize_t>(taken);
}

bool TlsStream::flush() {
  const int outcome = session_.flush();
  errno = -outcome;
  return outcome == 0;
}

Error TlsStream::error() const {
  switch (session_.trouble()) {
    case net::TlsSession::Trouble::kNotTls:
      return {ErrorCode::kUnsupported,
              "KV link: the peer does not encrypt: kvtransfer.tcp.encrypt must be the same on both "
              "ends"};
    case net::TlsSession::Trouble::kHandshake:
      return {ErrorCode::kUnsupported,
              "KV link: no TLS with the peer; is it of this job? (" + session_.failure() + ")"};
    default:
      return {ErrorCode::kCorrupt, "KV link: TLS failed: " + session_.failure()};
  }
}

}  // namespace pdjob::kvtransfer
