#include "net/loop/tcp_stream.h"

#include <array>
#include <cerrno>

#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include "common/check.h"

namespace pdjob::net {

// --- TcpStream

Status TcpStream::watch(FdHandler& handler) {
  return loop_.watch(socket_.get(), EPOLLIN | EPOLLOUT | EPOLLRDHUP, handler);
}

int TcpStream::connect_error() const {
  int error = 0;
  socklen_t size = sizeof error;
  return getsockopt(socket_.get(), SOL_SOCKET, SO_ERROR, &error, &size) == 0 ? error : errno;
}

ssize_t TcpStream::read(std::span<char> to) {
  ssize_t count = -1;
  do {
    count = recv(socket_.get(), to.data(), to.size(), 0);
  } while (count < 0 && errno == EINTR);
  return count < 0 ? -errno : count;
}

ssize_t TcpStream::write(std::span<const std::string_view> pieces) {
  PDJOB_CHECK(pieces.size() <= kSendPiecesMax, pieces.size());
  std::array<iovec, kSendPiecesMax> parts;
  msghdr message{};
  message.msg_iov = parts.data();
  for (const std::string_view piece : pieces) {
    if (!piece.empty()) {
      parts[message.msg_iovlen++] = {const_cast<char*>(piece.data()), piece.size()};
    }
  }
  if (message.msg_iovlen == 0) {
    return 0;
  }
  ssize_t sent = -1;
  do {
    // A plain send costs the kernel less.
    sent = message.msg_iovlen == 1 ? send(socket_.get(), parts[0].iov_base, parts[0].iov_len,
                                          MSG_NOSIGNAL | MSG_DONTWAIT)
                                   : sendmsg(socket_.get(), &message, MSG_NOSIGNAL | MSG_DONTWAIT);
  } while (sent < 0 && errno == EINTR);
  return sent < 0 ? -errno : sent;
}

void TcpStream::finish_writing() { shutdown(socket_.get(), SHUT_WR); }

void TcpStream::reset_when_closed() {
  const ::linger reset{.l_onoff = 1, .l_linger = 0};
  setsockopt(socket_.get(), SOL_SOCKET, SO_LINGER, &reset, sizeof reset);
}

// --- TcpListener

Status TcpListener::watch(FdHandler& handler) {
  return loop_.watch(socket_.get(), EPOLLIN, handler);
}

Result<std::unique_ptr<Stream>> TcpListener::accept() {
  while (true) {
    Fd fd(accept4(socket_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (fd.valid()) {
      set_no_delay(fd.get());
      return std::unique_ptr<Stream>(std::make_unique<TcpStream>(loop_, std::move(fd)));
    }
    if (errno == EAGAIN) {
      return std::unique_ptr<Stream>();
    }
    if (errno != EINTR && errno != ECONNABORTED) {
      return system_error("accept", ErrorCode::kOverloaded);
    }
  }
}

}  // namespace pdjob::net
