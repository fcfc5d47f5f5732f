// Which address of this machine others use. Asks the kernel, sends nothing. Thread-safe.
#pragma once

#include <cstdint>
#include <string>

#include "common/result.h"

namespace pdjob::launcher {

// The address from which this machine reaches `host`, numeric or a name. Blocks for a name.
Result<std::string> address_towards(const std::string& host, uint16_t port);

// `choice`: an address of this machine, the name of an interface ("eth0"), or a network
// ("10.77.0.0/24", "fd00::/8"). Returns the first address that fits; IPv4 comes first. An
// interface's link-local address is never taken.
Result<std::string> address_by_choice(const std::string& choice);

}  // namespace pdjob::launcher
