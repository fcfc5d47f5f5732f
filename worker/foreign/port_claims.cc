#include "worker/foreign/port_claims.h"

#include <utility>

#include <sys/socket.h>

#include "common/address_text.h"

namespace pdjob::worker {
namespace {

// A port of the band must be nobody's: it is bound without reuse, which is allowed only afterwards.
// A port that the user named is ours, and connections of its last owner may still linger there.
enum class Claim { kOfBand, kOfUser };

Result<net::Fd> claim(const std::string& host, uint16_t port, Claim kind) {
  PDJOB_TRY(const auto addresses, net::resolve(host, port, net::HostForm::kNumeric));
  const net::SocketAddress& address = addresses.front();
  net::Fd socket(::socket(address.storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const auto allow_reuse = [&socket] {
    const int on = 1;
    setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  };
  if (kind == Claim::kOfUser) {
    allow_reuse();
  }
  if (!socket.valid() ||
      bind(socket.get(), reinterpret_cast<const sockaddr*>(&address.storage), address.size) != 0) {
    return system_error(address_text(host, port));
  }
  allow_reuse();
  return socket;
}

}  // namespace

Result<PortClaims> PortClaims::take(const std::string& host, const std::vector<uint16_t>& wanted,
                                    const engine::PortBand& band, size_t start) {
  PortClaims claims;
  const size_t size = size_t{1} + band.last - band.first;
  size_t tried = 0;
  for (uint16_t port : wanted) {
    Result<net::Fd> socket = port != 0 ? claim(host, port, Claim::kOfUser)
                                       : Error{ErrorCode::kUnavailable, "the band is used up"};
    for (; port == 0 && !socket && tried < size; ++tried) {
      const auto candidate = static_cast<uint16_t>(band.first + (start + tried) % size);
      socket = claim(host, candidate, Claim::kOfBand);
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
