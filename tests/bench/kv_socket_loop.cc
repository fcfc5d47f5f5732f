#include "tests/bench/kv_socket_loop.h"

#include <array>
#include <cerrno>
#include <cstring>

#include <arpa/inet.h>
#include <linux/errqueue.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/check.h"
#include "kvtransfer/rows/row_cursor.h"

namespace pdjob::bench {
namespace {

constexpr size_t kPieceBytes = 1 << 20;
constexpr size_t kPiecesMax = 64;

template <typename Move>  // ssize_t(msghdr&)
void move_all(const kvtransfer::Region& region, const Move& move) {
  kvtransfer::RowCursor cursor(region.windows, {.first = 0, .count = region.rows_max});
  while (cursor.bytes_left() > 0) {
    std::array<iovec, kPiecesMax> pieces;
    msghdr message{};
    message.msg_iov = pieces.data();
    message.msg_iovlen = cursor.gather(pieces, kPieceBytes);
    const ssize_t moved = move(message);
    PDJOB_CHECK(moved > 0, errno);
    cursor.advance(static_cast<size_t>(moved));
  }
}

// The kernel owns the pages of a call until it reports them free. Returns how many calls it
// reported.
uint32_t reap(int socket) {
  alignas(cmsghdr) std::array<char, 256> control;
  msghdr message{};
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  if (::recvmsg(socket, &message, MSG_ERRQUEUE) < 0) {
    PDJOB_CHECK(errno == EAGAIN, errno);
    pollfd waiting{.fd = socket, .events = 0, .revents = 0};
    ::poll(&waiting, 1, 1000);
    return 0;
  }
  sock_extended_err notice{};
  std::memcpy(&notice, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof notice);
  PDJOB_CHECK(notice.ee_origin == SO_EE_ORIGIN_ZEROCOPY);
  return notice.ee_data - notice.ee_info + 1;
}

}  // namespace

SocketPair connect_loopback(const char* congestion_control) {
  const int listener = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  auto* const any = reinterpret_cast<sockaddr*>(&address);
  PDJOB_CHECK(::bind(listener, any, size) == 0 && ::listen(listener, 1) == 0 &&
              ::getsockname(listener, any, &size) == 0);
  SocketPair pair{.sender = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)};
  const int on = 1;
  ::setsockopt(pair.sender, SOL_SOCKET, SO_ZEROCOPY, &on, sizeof on);
  ::setsockopt(pair.sender, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  PDJOB_CHECK(::connect(pair.sender, any, size) == 0);
  pair.receiver = ::accept4(listener, nullptr, nullptr, SOCK_CLOEXEC);
  PDJOB_CHECK(pair.receiver >= 0);
  ::close(listener);
  if (congestion_control != nullptr) {
    PDJOB_CHECK(::setsockopt(pair.sender, IPPROTO_TCP, TCP_CONGESTION, congestion_control,
                             static_cast<socklen_t>(std::strlen(congestion_control))) == 0);
  }
  return pair;
}

void send_rows(int socket, const kvtransfer::Region& source, SocketMode mode) {
  uint32_t lent = 0;
  move_all(source, [&](msghdr& message) {
    if (mode == SocketMode::kPlain) {
      return ::sendmsg(socket, &message, MSG_NOSIGNAL);
    }
    for (;;) {
      const ssize_t sent = ::sendmsg(socket, &message, MSG_NOSIGNAL | MSG_ZEROCOPY);
      if (sent >= 0 || errno != ENOBUFS) {
        lent += sent > 0 ? 1 : 0;
        return sent;
      }
      lent -= reap(socket);  // The kernel lends no more pages until some return.
    }
  });
  while (lent > 0) {
    lent -= reap(socket);
  }
}

void receive_rows(int socket, const kvtransfer::Region& target) {
  move_all(target, [&](msghdr& message) { return ::recvmsg(socket, &message, 0); });
}

}  // namespace pdjob::bench
