#include "worker/foreign/port_claims.h"

#include <cerrno>
#include <cstring>
#include <utility>

#include <sys/socket.h>

namespace pdjob::worker {
namespace {

// Binds without reuse, which fails if anybody else has the port. Only then it allows reuse.
Result<net::Fd> claim(const std::string& host, uint16_t port) {
  PDJOB_TRY(const auto addresses, net::resolve(host, port, net::HostForm::kNumeric));
  const net::SocketAddress& address = addresses.front();
  net::Fd socket(::socket(address.storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!socket.valid() ||
      bind(socket.get(), reinterpret_cast<const sockaddr*>(&address.storage), address.size) != 0) {
    return Error{ErrorCode::kUnavailable,
                 host + ":" + std::to_string(port) + ": " + std::strerror(errno)};
  }
  const int on = 1;
  setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  return socket;
}

}  // namespace

Result<PortClaims> PortClaims::take(const std::string& host, const std::vector<uint16_t>& wanted,
                                    const engine::PortBand& band, size_t start) {
  PortClaims claims;
  const size_t size = size_t{1} + band.last - band.first;
  size_t tried = 0;
  for (uint16_t port : wanted) {
    Result<net::Fd> socket =
        port != 0 ? claim(host, port) : Error{ErrorCode::kUnavailable, "the band is used up"};
    for (; port == 0 && !socket && tried < size; ++tried) {
      const auto candidate = static_cast<uint16_t>(band.first + (start + tried) % size);
      socket = claim(host, candidate);
      if (socket) {
        port = candidate;
        ++tried;
        break;
      }
    }
    if (!socket) {
      return Error{ErrorCode::kUnavailable,
                   "no free port for the engine in engine.ports (" + std::to_string(band.first) +
                       "-" + std::to_string(band.last) + "): " + socket.error().message};
    }
    claims.ports_.push_back(port);
    claims.sockets_.push_back(std::move(*socket));
  }
  return claims;
}

}  // namespace pdjob::worker
