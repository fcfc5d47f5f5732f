#include "launcher/agents/node_address.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <sys/socket.h>

#include "net/loop/socket.h"
#include "net/outbound/ip_network.h"

namespace pdjob::launcher {

namespace {

struct Address {
  std::string interface;
  std::string text;
  net::IpAddress bytes{};
};

std::string text_of(const sockaddr* address, socklen_t size) {
  std::array<char, NI_MAXHOST> text{};
  const int failed =
      getnameinfo(address, size, text.data(), text.size(), nullptr, 0, NI_NUMERICHOST);
  return failed == 0 ? text.data() : "";
}

bool is_link_local(const net::IpAddress& address) {
  static const auto link_local = {*net::IpNetwork::parse("fe80::/10"),
                                  *net::IpNetwork::parse("169.254.0.0/16")};
  return std::ranges::any_of(
      link_local, [&](const net::IpNetwork& network) { return network.contains(address); });
}

// IPv4 first.
Result<std::vector<Address>> addresses_here() {
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) {
    return system_error("cannot list this machine's addresses");
  }
  const std::unique_ptr<ifaddrs, decltype(&freeifaddrs)> owned(list, freeifaddrs);
  std::vector<Address> addresses;
  std::vector<Address> others;
  for (const ifaddrs* at = list; at != nullptr; at = at->ifa_next) {
    const auto bytes = at->ifa_addr == nullptr ? std::nullopt : net::ip_of(*at->ifa_addr);
    if (!bytes || (at->ifa_flags & IFF_UP) == 0) {
      continue;
    }
    const bool v4 = at->ifa_addr->sa_family == AF_INET;
    const socklen_t size = v4 ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
    (v4 ? addresses : others).push_back({at->ifa_name, text_of(at->ifa_addr, size), *bytes});
  }
  addresses.insert(addresses.end(), others.begin(), others.end());
  return addresses;
}

}  // namespace

// A UDP socket that is connected sends nothing.
Result<std::string> address_towards(const std::string& host, uint16_t port) {
  PDJOB_TRY(const std::vector<net::SocketAddress> found,
            net::resolve(host, port, net::HostForm::kNameOrNumeric));
  std::string why = "it has no address";
  for (const net::SocketAddress& to : found) {
    const net::Fd probe(socket(to.storage.ss_family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    sockaddr_storage own{};
    socklen_t size = sizeof own;
    if (probe.valid() &&
        connect(probe.get(), reinterpret_cast<const sockaddr*>(&to.storage), to.size) == 0 &&
        getsockname(probe.get(), reinterpret_cast<sockaddr*>(&own), &size) == 0) {
      return text_of(reinterpret_cast<const sockaddr*>(&own), size);
    }
    why = std::strerror(errno);
  }
  return Error{ErrorCode::kUnavailable, "there is no way from here to " + host + ": " + why};
}

Result<std::string> address_by_choice(const std::string& choice) {
  PDJOB_TRY(const std::vector<Address> here, addresses_here());
  const auto network = net::IpNetwork::parse(choice);
  const auto fits = [&](const Address& address) {
    return network ? network->contains(address.bytes)
                   : address.interface == choice && !is_link_local(address.bytes);
  };
  const auto found = std::ranges::find_if(here, fits);
  if (found != here.end()) {
    return found->text;
  }
  std::string known;
  for (const Address& address : here) {
    known += (known.empty() ? "" : ", ") + address.text + " (" + address.interface + ")";
  }
  return Error{ErrorCode::kInvalidArgument,
               "no address of this machine fits " + choice + "; it has " + known};
}

}  // namespace pdjob::launcher
