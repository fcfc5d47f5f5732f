// Finds the process that listens on a port of this machine, to name it in an error. It reads /proc,
// which shows other users' processes only to root.
#pragma once

#include <cstdint>
#include <string>

namespace pdjob::net {

// "nginx, pid 4711". Empty: nobody listens there, or it cannot be seen who.
std::string port_owner(uint16_t port);

}  // namespace pdjob::net
