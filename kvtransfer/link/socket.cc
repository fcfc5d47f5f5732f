#include "kvtransfer/link/socket.h"

#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string_view>

#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "common/address_text.h"

namespace pdjob::kvtransfer {
namespace {

constexpr int kBacklog = 1024;
constexpr int kSocketType = SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC;

struct Address {
  sockaddr_storage storage{};
  socklen_t size = 0;
  const sockaddr* raw() const { return reinterpret_cast<const sockaddr*>(&storage); }
};

Result<Address> tcp_address(const std::string& host, uint16_t port) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV;
  addrinfo* found = nullptr;
  const std::string numeric = host == "localhost" ? "127.0.0.1" : host;
  if (::getaddrinfo(numeric.c_str(), std::to_string(port).c_str(), &hints, &found) != 0) {
    return Error{ErrorCode::kInvalidArgument, "not a numeric address: '" + host + "'"};
  }
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> owner(found, ::freeaddrinfo);
  Address address;
  std::memcpy(&address.storage, found->ai_addr, found->ai_addrlen);
  address.size = found->ai_addrlen;
  return address;
}

Result<Address> unix_address(const std::string& name) {
  Address address;
  auto* path = reinterpret_cast<sockaddr_un*>(&address.storage);
  if (name.size() < 2 || name.front() != '@' || name.size() > sizeof path->sun_path) {
    return Error{ErrorCode::kInvalidArgument, "not an abstract socket name: '" + name + "'"};
  }
  path->sun_family = AF_UNIX;
  std::memcpy(path->sun_path + 1, name.data() + 1, name.size() - 1);
  address.size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + name.size());
  return address;
}

// `call` is getsockname or getpeername.
Result<Address> address_by(int (*call)(int, sockaddr*, socklen_t*), const Fd& socket) {
  Address address;
  address.size = sizeof address.storage;
  if (call(socket.get(), reinterpret_cast<sockaddr*>(&address.storage), &address.size) != 0) {
    return system_error("cannot ask a socket for its address");
  }
  return address;
}

uint16_t& port_of(Address& address) {
  return address.storage.ss_family == AF_INET6
             ? reinterpret_cast<sockaddr_in6*>(&address.storage)->sin6_port
             : reinterpret_cast<sockaddr_in*>(&address.storage)->sin_port;
}

// True if both ends have the same address, so packets never leave the machine.
bool stays_on_machine(const Fd& socket) {
  Result<Address> ours = address_by(::getsockname, socket);
  Result<Address> peers = address_by(::getpeername, socket);
  if (!ours || !peers) {
    return false;
  }
  port_of(*ours) = port_of(*peers) = 0;
  return ours->size == peers->size && std::memcmp(&ours->storage, &peers->storage, ours->size) == 0;
}

Result<Fd> listen_at(const Address& address, const std::string& told) {
  Fd listener(::socket(address.storage.ss_family, kSocketType, 0));
  const int on = 1;
  if (!listener.valid() ||
      ::setsockopt(listener.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) != 0 ||
      ::bind(listener.get(), address.raw(), address.size) != 0 ||
      ::listen(listener.get(), kBacklog) != 0) {
    return system_error("cannot listen on " + told);
  }
  return listener;
}

Result<Fd> connect_to(const Address& address, const std::string& told) {
  Fd socket(::socket(address.storage.ss_family, kSocketType, 0));
  if (!socket.valid() ||
      (::connect(socket.get(), address.raw(), address.size) != 0 && errno != EINPROGRESS)) {
    return system_error("cannot connect to " + told);
  }
  return socket;
}

using Ip = std::array<uint8_t, 16>;

// An IPv4 address in the form ::ffff:a.b.c.d; all zero for other families.
Ip ip_of(const Address& address) {
  Ip ip{};
  if (address.storage.ss_family == AF_INET) {
    ip[10] = ip[11] = 0xff;
    std::memcpy(&ip[12], &reinterpret_cast<const sockaddr_in*>(&address.storage)->sin_addr, 4);
  } else if (address.storage.ss_family == AF_INET6) {
    std::memcpy(ip.data(), &reinterpret_cast<const sockaddr_in6*>(&address.storage)->sin6_addr, 16);
  }
  return ip;
}

bool is_loopback(const Address& address) {
  const Ip ip = ip_of(address);
  Ip v6_loopback{};
  v6_loopback[15] = 1;
  return ip == v6_loopback || (ip[10] == 0xff && ip[11] == 0xff && ip[12] == 127);
}

}  // namespace

Result<Fd> listen_tcp(const std::string& host, uint16_t port) {
  PDJOB_TRY(const Address address, tcp_address(host, port));
  return listen_at(address, address_text(host, port));
}

Result<Fd> listen_unix(const std::string& name) {
  PDJOB_TRY(const Address address, unix_address(name));
  return listen_at(address, name);
}

Result<uint16_t> bound_port(const Fd& socket) {
  PDJOB_TRY(Address address, address_by(::getsockname, socket));
  return ntohs(port_of(address));
}

Result<Fd> connect_tcp(const std::string& host, uint16_t port) {
  PDJOB_TRY(const Address address, tcp_address(host, port));
  PDJOB_TRY(Fd socket, connect_to(address, address_text(host, port)));
  tune_tcp(socket);
  return socket;
}

Result<Fd> connect_unix(const std::string& name) {
  PDJOB_TRY(const Address address, unix_address(name));
  return connect_to(address, name);
}

Status connect_error(const Fd& socket) {
  int error = 0;
  socklen_t size = sizeof error;
  if (::getsockopt(socket.get(), SOL_SOCKET, SO_ERROR, &error, &size) != 0) {
    error = errno;
  }
  if (error != 0) {
    return Error{ErrorCode::kUnavailable, std::string("cannot connect: ") + std::strerror(error)};
  }
  return ok();
}

Fd accept_next(const Fd& listener) {
  return Fd(::accept4(listener.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
}

bool peer_is_loopback(const Fd& socket) {
  const Result<Address> peer = address_by(::getpeername, socket);
  return peer && (peer->storage.ss_family == AF_UNIX || is_loopback(*peer));
}

bool stays_here(const Fd& socket, const std::string& peer) {
  const Result<Address> own = address_by(::getsockname, socket);
  const Result<Address> other =
      peer.empty() ? address_by(::getpeername, socket) : tcp_address(peer, 0);
  return own && other &&
         (ip_of(*own) == ip_of(*other) || (is_loopback(*own) && is_loopback(*other)));
}

bool peer_has_closed(const Fd& socket) {
  pollfd state{.fd = socket.get(), .events = 0, .revents = 0};
  return ::poll(&state, 1, 0) == 1 && (state.revents & POLLHUP) != 0;
}

bool peer_has_our_uid(const Fd& socket) {
  int domain = 0;
  socklen_t size = sizeof domain;
  if (::getsockopt(socket.get(), SOL_SOCKET, SO_DOMAIN, &domain, &size) != 0) {
    return false;
  }
  if (domain != AF_UNIX) {
    return true;
  }
  ucred peer{};
  size = sizeof peer;
  return ::getsockopt(socket.get(), SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 &&
         peer.uid == ::geteuid();
}

void tune_tcp(const Fd& socket) {
  const auto set = [&](int level, int option, int value) {
    ::setsockopt(socket.get(), level, option, &value, sizeof value);
  };
  set(IPPROTO_TCP, TCP_NODELAY, 1);
  set(SOL_SOCKET, SO_KEEPALIVE, 1);
  set(IPPROTO_TCP, TCP_KEEPIDLE, 10);
  set(IPPROTO_TCP, TCP_KEEPINTVL, 5);
  set(IPPROTO_TCP, TCP_KEEPCNT, 3);
  set(IPPROTO_TCP, TCP_USER_TIMEOUT, 30'000);
  if (stays_on_machine(socket)) {
    constexpr std::string_view kUnpaced = "reno";  // Every kernel has it, and any user may set it.
    ::setsockopt(socket.get(), IPPROTO_TCP, TCP_CONGESTION, kUnpaced.data(), kUnpaced.size());
  }
}

}  // namespace pdjob::kvtransfer
