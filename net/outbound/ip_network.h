// IP addresses and blocks of them, for deciding who may be called. An IPv4 address is the same as
// its IPv6 form ::ffff:a.b.c.d. Pure.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>

#include <sys/socket.h>

namespace pdjob::net {

using IpAddress = std::array<uint8_t, 16>;  // Network byte order.

// "10.0.0.1", "::1"; empty: any other text.
std::optional<IpAddress> parse_ip(std::string_view text);
// Empty: it is of another family.
std::optional<IpAddress> ip_of(const sockaddr& address);

// False for loopback, private, link-local, shared and reserved addresses and multicast, and for
// IPv6 addresses that translate to an IPv4 address.
bool is_public(const IpAddress& address);

class IpNetwork {
 public:
  // "10.0.0.0/8", "fd00::/8", or one address. Empty: any other text, or bits behind the prefix.
  static std::optional<IpNetwork> parse(std::string_view text);
  bool contains(const IpAddress& address) const;

 private:
  IpAddress first_{};
  int bits_ = 0;  // Of the IPv6 form.
};

}  // namespace pdjob::net
