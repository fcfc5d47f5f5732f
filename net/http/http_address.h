// HttpAddress: where an HTTP server listens. Value.
#pragma once

#include <compare>
#include <cstdint>
#include <string>
#include <string_view>

#include "common/result.h"

namespace pdjob::net {

struct HttpAddress {
  // A name or an address, IPv4 or IPv6. Names are resolved at first use.
  std::string host;
  uint16_t port = 80;
  std::string to_string() const;  // "host:port", "[::1]:port"
  friend auto operator<=>(const HttpAddress&, const HttpAddress&) = default;
};
// Accepts "http://host:port" or "host:port", without a path. Port 0 is for listening: any free
// port.
Result<HttpAddress> parse_http_address(std::string_view text);

}  // namespace pdjob::net
