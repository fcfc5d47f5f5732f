#include "net/loop/socket.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <memory>
#include <utility>

#include <fcntl.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <unistd.h>

#include "common/address_text.h"
#include "common/check.h"
#include "common/limits.h"
#include "net/loop/free_text.h"
#include "net/loop/port_owner.h"

namespace pdjob::net {
namespace {

constexpr int kListenBacklog = 4096;
// A queue that was once long does not keep its memory.
constexpr size_t kQueueCapacityKept = 256 * limits::kKiB;
// For a connection that waits for its next request; there are many of these.
constexpr size_t kIdleCapacityKept = 2 * limits::kKiB;
// Short pieces are appended to held bytes: one piece costs less than two.
constexpr size_t kJoinedBytes = 16 * limits::kKiB;

}  // namespace

Result<std::vector<SocketAddress>> resolve(const std::string& host, uint16_t port, HostForm form) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICSERV | (form == HostForm::kNumeric ? AI_NUMERICHOST : 0);
  addrinfo* list = nullptr;
  const int error = getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &list);
  if (error != 0) {
    return Error{ErrorCode::kUnavailable, "cannot resolve " + host + ": " + gai_strerror(error)};
  }
  std::vector<SocketAddress> addresses;
  for (const addrinfo* entry = list; entry != nullptr; entry = entry->ai_next) {
    SocketAddress& address = addresses.emplace_back();
    memcpy(&address.storage, entry->ai_addr, entry->ai_addrlen);
    address.size = entry->ai_addrlen;
  }
  freeaddrinfo(list);
  return addresses;
}

Result<std::vector<OwnAddress>> own_addresses() {
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) {
    return system_error("cannot list this machine's addresses");
  }
  const std::unique_ptr<ifaddrs, decltype(&freeifaddrs)> owned(list, freeifaddrs);
  std::vector<OwnAddress> addresses;
  std::vector<OwnAddress> others;
  for (const ifaddrs* at = list; at != nullptr; at = at->ifa_next) {
    const int family = at->ifa_addr == nullptr ? AF_UNSPEC : at->ifa_addr->sa_family;
    if ((family != AF_INET && family != AF_INET6) || (at->ifa_flags & IFF_UP) == 0) {
      continue;
    }
    OwnAddress own{.interface = at->ifa_name, .text = "", .address = {}};
    own.address.size = family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
    std::memcpy(&own.address.storage, at->ifa_addr, own.address.size);
    own.text = numeric_text(own.address);
    (family == AF_INET ? addresses : others).push_back(std::move(own));
  }
  addresses.insert(addresses.end(), others.begin(), others.end());
  return addresses;
}

std::string numeric_text(const SocketAddress& address) {
  std::array<char, NI_MAXHOST> text{};
  const int failed = getnameinfo(reinterpret_cast<const sockaddr*>(&address.storage), address.size,
                                 text.data(), text.size(), nullptr, 0, NI_NUMERICHOST);
  return failed == 0 ? text.data() : "";
}

Result<Fd> listen_on(const std::string& host, uint16_t port, PortUse use) {
  PDJOB_TRY(const auto addresses, resolve(host, port, HostForm::kNameOrNumeric));
  const SocketAddress& address = addresses.front();
  Fd fd(socket(address.storage.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!fd.valid()) {
    return system_error("socket", ErrorCode::kInternal);
  }
  const int on = 1;
  setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (use == PortUse::kShared) {
    setsockopt(fd.get(), SOL_SOCKET, SO_REUSEPORT, &on, sizeof on);
  }
  if (bind(fd.get(), reinterpret_cast<const sockaddr*>(&address.storage), address.size) != 0 ||
      listen(fd.get(), kListenBacklog) != 0) {
    const bool in_use = errno == EADDRINUSE;
    Error error = system_error("cannot listen on " + address_text(host, port),
                               in_use ? ErrorCode::kOverloaded : ErrorCode::kUnavailable);
    const auto owner = in_use ? port_owner(port) : std::nullopt;
    error.message += owner ? " by " + owner->text() : "";
    return error;
  }
  return fd;
}

Result<Fd> adopt_listener(int fd) {
  Fd listener(fd);
  const int flags = fcntl(fd, F_GETFL);
  if (flags < 0 || fcntl(fd, F_SETFL, flags | O_NONBLOCK) < 0 ||
      fcntl(fd, F_SETFD, FD_CLOEXEC) < 0) {
    return system_error("listening socket", ErrorCode::kInvalidArgument);
  }
  return listener;
}

uint16_t local_port(int fd) {
  sockaddr_storage storage{};
  socklen_t size = sizeof storage;
  if (getsockname(fd, reinterpret_cast<sockaddr*>(&storage), &size) != 0) {
    return 0;
  }
  return storage.ss_family == AF_INET6
             ? ntohs(reinterpret_cast<const sockaddr_in6*>(&storage)->sin6_port)
             : ntohs(reinterpret_cast<const sockaddr_in*>(&storage)->sin_port);
}

Result<Fd> connect_to(const SocketAddress& address) {
  Fd fd(socket(address.storage.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!fd.valid()) {
    return system_error("socket", ErrorCode::kInternal);
  }
  set_no_delay(fd.get());
  if (connect(fd.get(), reinterpret_cast<const sockaddr*>(&address.storage), address.size) != 0 &&
      errno != EINPROGRESS) {
    return system_error("connect");
  }
  return fd;
}

void set_no_delay(int fd) {
  const int on = 1;
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

bool SendQueue::send(Stream& stream, std::span<const std::string_view> pieces) {
  if (blocked_) {
    append(pieces, 0);
    return true;
  }
  std::array<std::string_view, kSendPiecesMax> all;
  PDJOB_CHECK(pieces.size() < all.size(), pieces.size());
  size_t total = size();
  for (const std::string_view piece : pieces) {
    total += piece.size();
  }
  if (!empty() && total <= kJoinedBytes) {
    append(pieces, 0);
    pieces = {};
  }
  const size_t held = size();
  all[0] = std::string_view(bytes_).substr(at_);
  for (size_t i = 0; i < pieces.size(); ++i) {
    all[i + 1] = pieces[i];
  }
  const ssize_t result = stream.write(std::span(all).first(pieces.size() + 1));
  if (result < 0 && result != -EAGAIN) {
    return false;
  }
  const size_t sent = result < 0 ? 0 : static_cast<size_t>(result);
  if (sent == total) {
    clear();
    return true;
  }
  // A short send means a full buffer, so the socket will report when it is writable again.
  blocked_ = true;
  at_ += std::min(sent, held);
  append(pieces, sent - std::min(sent, held));
  return true;
}

bool SendQueue::flush(Stream& stream) {
  blocked_ = false;
  return empty() || send(stream, {});
}

void SendQueue::shrink() {
  if (empty() && bytes_.capacity() > kIdleCapacityKept) {
    free_text(bytes_);
    at_ = 0;
  }
}

void SendQueue::append(std::span<const std::string_view> pieces, size_t skipped) {
  // Drops the sent bytes in front when they are the larger half, so that each byte moves at most
  // once more.
  if (at_ > bytes_.size() / 2) {
    bytes_.erase(0, std::exchange(at_, 0));
  }
  for (const std::string_view piece : pieces) {
    const size_t skip = std::min(skipped, piece.size());
    skipped -= skip;
    bytes_.append(piece.substr(skip));
  }
}

void SendQueue::clear() {
  at_ = 0;
  blocked_ = false;
  if (bytes_.capacity() > kQueueCapacityKept) {
    free_text(bytes_);
  }
  bytes_.clear();
}

}  // namespace pdjob::net
