#include "worker/foreign/port_claims.h"

#include <algorithm>
#include <iterator>
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

using Run = Result<std::vector<net::Fd>>;

// All of them, or none.
Run claim_run(const std::string& host, const PortWish& wish, Claim kind) {
  std::vector<net::Fd> sockets;
  for (uint32_t i = 0; i < wish.count; ++i) {
    PDJOB_TRY(net::Fd socket, claim(host, static_cast<uint16_t>(wish.port + i), kind));
    sockets.push_back(std::move(socket));
  }
  return sockets;
}

}  // namespace

Result<PortClaims> PortClaims::take(const std::string& host, const std::vector<PortWish>& wishes,
                                    const engine::PortBand& band, size_t start, bool exactly) {
  PortClaims claims;
  const size_t size = band.size();
  size_t tried = 0;
  for (const PortWish& wish : wishes) {
    auto run = wish.port != 0 ? claim_run(host, wish, Claim::kOfUser)
                              : Run(Error{ErrorCode::kUnavailable, "the band is used up"});
    uint16_t first = wish.port;
    while (wish.port == 0 && !run && tried < size) {
      const size_t at = (start + tried) % size;
      first = static_cast<uint16_t>(band.first + at);
      run = at + wish.count > size ? Run(Error{ErrorCode::kUnavailable, "the band ends"})
                                   : claim_run(host, {first, wish.count}, Claim::kOfBand);
      tried += run ? wish.count : 1;
      if (exactly) {
        break;
      }
    }
    if (!run) {
      return Error{ErrorCode::kUnavailable,
                   "no free port for the engine in engine.ports (" + std::to_string(band.first) +
                       "-" + std::to_string(band.last) + "): " + run.error().message};
    }
    claims.ports_.push_back(first);
    std::ranges::move(*run, std::back_inserter(claims.sockets_));
  }
  return claims;
}

}  // namespace pdjob::worker
