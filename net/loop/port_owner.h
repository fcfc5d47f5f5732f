// Finds the process that listens on a port of this machine, to name it in an error. It reads /proc,
// which shows other users' processes only to root.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace pdjob::net {

struct PortOwner {
  std::string name;
  int pid = 0;
  std::string text() const { return name + ", pid " + std::to_string(pid); }
};
// Empty: nobody listens there, or it cannot be seen who.
std::optional<PortOwner> port_owner(uint16_t port);

}  // namespace pdjob::net
