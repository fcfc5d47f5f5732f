// Resolver: turns host names into socket addresses without blocking the loop. Loop-bound.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "common/result.h"
#include "net/loop/socket.h"

namespace pdjob::net {

class Resolver {
 public:
  using Addresses = Result<std::vector<SocketAddress>>;

  virtual ~Resolver() = default;
  // Calls `then` in a later turn, unless the resolver is destroyed first.
  virtual void look_up(std::string host, uint16_t port, std::function<void(Addresses)> then) = 0;
};

}  // namespace pdjob::net
