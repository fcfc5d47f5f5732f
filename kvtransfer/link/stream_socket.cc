#include "kvtransfer/link/stream_socket.h"

#include <array>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <utility>

#include <poll.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include "common/check.h"
#include "common/limits.h"
#include "kvtransfer/link/socket.h"

namespace pdjob::kvtransfer {

StreamSocket::StreamSocket(net::EventLoop& loop, Options options)
    : loop_(loop),
      socket_(std::move(options.socket)),
      loopback_only_(options.loopback_only),
      tls_(options.tls != nullptr
               ? std::make_unique<TlsStream>(*options.tls, socket_.get(), options.side)
               : nullptr) {}

Status StreamSocket::watch(net::FdHandler& handler) {
  return loop_.watch(socket_.get(), EPOLLIN | EPOLLOUT | EPOLLRDHUP, handler);
}

Status StreamSocket::connected() const {
  PDJOB_TRY_STATUS(connect_error(socket_));
  if (!peer_has_our_uid(socket_)) {
    return Error{ErrorCode::kUnsupported, "KV link: the peer runs as another user"};
  }
  if (loopback_only_ && !peer_is_loopback(socket_)) {
    return Error{ErrorCode::kUnsupported,
                 "KV link: without keys of a job, peers must be on this machine"};
  }
  return ok();
}

bool StreamSocket::peer_has_closed() const { return kvtransfer::peer_has_closed(socket_); }

Status StreamSocket::follow_peer() {
  PDJOB_TRY(peer_, PeerProcess::of(socket_));
  return ok();
}

void StreamSocket::finish_writing() { ::shutdown(socket_.get(), SHUT_WR); }

// A ClientHello is {0x16, 3, 1, two bytes of length, 1, ...}. A HELLO is {four bytes of length, 1,
// 0, ...}. The sixth byte always differs.
std::optional<LinkSocket::Greeting> StreamSocket::greeting() const {
  std::array<unsigned char, 6> begin{};
  const ssize_t seen = ::recv(socket_.get(), begin.data(), begin.size(), MSG_PEEK | MSG_DONTWAIT);
  if (seen == 0 || (seen < 0 && errno != EAGAIN && errno != EINTR)) {
    return encrypted() ? Greeting::kTls : Greeting::kPlain;  // read() will report the error.
  }
  pollfd state{.fd = socket_.get(), .events = POLLRDHUP, .revents = 0};
  if (seen < static_cast<ssize_t>(begin.size()) && ::poll(&state, 1, 0) == 0) {
    return std::nullopt;
  }
  const bool is_tls = begin[0] == 0x16 && begin[1] == 3 && begin[5] == 1;
  return is_tls ? Greeting::kTls : Greeting::kPlain;
}

void StreamSocket::turn_away() {
  tls_.reset();
  std::array<char, 4 * limits::kKiB> dropped;
  while (::recv(socket_.get(), dropped.data(), dropped.size(), MSG_DONTWAIT) ==
         static_cast<ssize_t>(dropped.size())) {
  }
}

ssize_t StreamSocket::read(std::span<iovec> pieces, std::deque<Fd>& shared) {
  if (tls_) {
    return tls_->read(pieces);
  }
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int) * kSharedWaitingMax)> control;
  msghdr message{};
  message.msg_iov = pieces.data();
  message.msg_iovlen = pieces.size();
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  const ssize_t received = ::recvmsg(socket_.get(), &message, MSG_CMSG_CLOEXEC);
  if (received < 0) {
    return received;
  }
  for (cmsghdr* part = CMSG_FIRSTHDR(&message); part != nullptr;
       part = CMSG_NXTHDR(&message, part)) {
    if (part->cmsg_level != SOL_SOCKET || part->cmsg_type != SCM_RIGHTS) {
      continue;
    }
    const size_t count = (part->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (size_t i = 0; i < count; ++i) {
      int fd = -1;
      std::memcpy(&fd, CMSG_DATA(part) + i * sizeof(int), sizeof fd);
      shared.emplace_back(fd);
    }
  }
  if (shared.size() > kSharedWaitingMax || (message.msg_flags & MSG_CTRUNC) != 0) {
    errno = EPROTO;
    return -1;
  }
  return received;
}

ssize_t StreamSocket::write(std::span<const iovec> pieces, const Fd& shared, Then then) {
  if (tls_) {
    PDJOB_CHECK(!shared.valid());
    return tls_->write(pieces);
  }
  msghdr message{};
  message.msg_iov = const_cast<iovec*>(pieces.data());
  message.msg_iovlen = pieces.size();
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> control{};
  if (shared.valid()) {
    message.msg_control = control.data();
    message.msg_controllen = control.size();
    cmsghdr* part = CMSG_FIRSTHDR(&message);
    part->cmsg_level = SOL_SOCKET;
    part->cmsg_type = SCM_RIGHTS;
    part->cmsg_len = CMSG_LEN(sizeof(int));
    const int fd = shared.get();
    std::memcpy(CMSG_DATA(part), &fd, sizeof fd);
  }
  return ::sendmsg(socket_.get(), &message, MSG_NOSIGNAL | (then == Then::kMore ? MSG_MORE : 0));
}

Error StreamSocket::error() const {
  if (errno == EPROTO) {
    return tls_ ? tls_->error()
                : Error{ErrorCode::kCorrupt, "too many file descriptors came over a KV link"};
  }
  return {ErrorCode::kUnavailable, std::string("KV link lost: ") + std::strerror(errno)};
}

}  // namespace pdjob::kvtransfer
