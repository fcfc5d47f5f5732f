// PortClaims: ports of this machine for an engine that binds them itself. Each is held by a socket
// that does not listen, so that no other worker takes it before the engine has it. The engine's own
// socket may share it, because both allow reuse of the address. Value (move-only).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/result.h"
#include "engine/recipes/foreign_config.h"
#include "net/loop/socket.h"

namespace pdjob::worker {

// One port, or several in a row.
struct PortWish {
  uint16_t port = 0;  // The first; 0: any free one of the band.
  uint32_t count = 1;
};

class PortClaims {
 public:
  // The search begins `start` ports into the band and goes round; if `exactly`, each port must be
  // the first that it comes to. kUnavailable: the band has too few, or a wanted port is in use.
  static Result<PortClaims> take(const std::string& host, const std::vector<PortWish>& wishes,
                                 const engine::PortBand& band, size_t start, bool exactly = false);

  // Of each wish, the first.
  const std::vector<uint16_t>& ports() const { return ports_; }

 private:
  std::vector<uint16_t> ports_;
  std::vector<net::Fd> sockets_;
};

}  // namespace pdjob::worker
