#include "net/outbound/ip_network.h"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <string>

#include <arpa/inet.h>
#include <netinet/in.h>

#include "common/parse_number.h"

namespace pdjob::net {
namespace {

constexpr int kMappedBits = 96;  // Of ::ffff:0:0/96, in which IPv4 addresses lie.

IpAddress mapped(const in_addr& v4) {
  IpAddress address{};
  address[10] = address[11] = 0xff;
  std::memcpy(&address[12], &v4, sizeof v4);
  return address;
}

bool same_beginning(const IpAddress& a, const IpAddress& b, int bits) {
  const auto whole = static_cast<size_t>(bits / 8);
  if (!std::equal(a.begin(), std::next(a.begin(), static_cast<ptrdiff_t>(whole)), b.begin())) {
    return false;
  }
  const int rest = bits % 8;
  return rest == 0 || ((a[whole] ^ b[whole]) >> (8 - rest)) == 0;
}

}  // namespace

std::optional<IpAddress> parse_ip(std::string_view text) {
  const std::string copy(text);
  if (in_addr v4{}; inet_pton(AF_INET, copy.c_str(), &v4) == 1) {
    return mapped(v4);
  }
  in6_addr v6{};
  if (inet_pton(AF_INET6, copy.c_str(), &v6) != 1) {
    return std::nullopt;
  }
  IpAddress address{};
  std::memcpy(address.data(), &v6, sizeof v6);
  return address;
}

std::optional<IpAddress> ip_of(const sockaddr& address) {
  if (address.sa_family == AF_INET) {
    sockaddr_in v4{};
    std::memcpy(&v4, &address, sizeof v4);
    return mapped(v4.sin_addr);
  }
  if (address.sa_family != AF_INET6) {
    return std::nullopt;
  }
  sockaddr_in6 v6{};
  std::memcpy(&v6, &address, sizeof v6);
  IpAddress bytes{};
  std::memcpy(bytes.data(), &v6.sin6_addr, sizeof v6.sin6_addr);
  return bytes;
}

// The registries of special addresses: RFC 6890 and its successors.
bool is_public(const IpAddress& address) {
  static constexpr const char* kSpecial[] = {
      "0.0.0.0/8",     "10.0.0.0/8",      "100.64.0.0/10",  "127.0.0.0/8",    "169.254.0.0/16",
      "172.16.0.0/12", "192.0.0.0/24",    "192.0.2.0/24",   "192.88.99.0/24", "192.168.0.0/16",
      "198.18.0.0/15", "198.51.100.0/24", "203.0.113.0/24", "224.0.0.0/3",    "::/96",
      "64:ff9b::/96",  "64:ff9b:1::/48",  "100::/64",       "2001::/23",      "2001:db8::/32",
      "2002::/16",     "fc00::/7",        "fe80::/10",      "ff00::/8"};
  static const auto networks = [] {
    std::array<IpNetwork, std::size(kSpecial)> parsed;
    std::transform(std::begin(kSpecial), std::end(kSpecial), parsed.begin(),
                   [](const char* text) { return *IpNetwork::parse(text); });
    return parsed;
  }();
  return std::none_of(networks.begin(), networks.end(),
                      [&](const IpNetwork& network) { return network.contains(address); });
}

std::optional<IpNetwork> IpNetwork::parse(std::string_view text) {
  const size_t slash = std::min(text.find('/'), text.size());
  const auto first = parse_ip(text.substr(0, slash));
  if (!first) {
    return std::nullopt;
  }
  const bool v4 = text.substr(0, slash).find(':') == std::string_view::npos;
  const int most = v4 ? 32 : 128;
  int bits = most;
  if (slash < text.size()) {
    const auto written = parse_number<uint8_t>(text.substr(slash + 1));
    if (!written || *written > most) {
      return std::nullopt;
    }
    bits = *written;
  }
  IpNetwork network;
  network.first_ = *first;
  network.bits_ = v4 ? kMappedBits + bits : bits;
  IpAddress beginning = *first;
  for (int bit = network.bits_; bit < 128; ++bit) {
    beginning[static_cast<size_t>(bit / 8)] &= static_cast<uint8_t>(~(0x80 >> (bit % 8)));
  }
  return beginning == *first ? std::optional(network) : std::nullopt;
}

bool IpNetwork::contains(const IpAddress& address) const {
  return same_beginning(first_, address, bits_);
}

}  // namespace pdjob::net
