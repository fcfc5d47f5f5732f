#include "launcher/agents/node_address.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>
#include <vector>

#include <sys/socket.h>

#include "net/loop/socket.h"
#include "net/outbound/ip_network.h"

namespace pdjob::launcher {

namespace {

bool is_link_local(const net::IpAddress& address) {
  static const auto link_local = {*net::IpNetwork::parse("fe80::/10"),
                                  *net::IpNetwork::parse("169.254.0.0/16")};
  return std::ranges::any_of(
      link_local, [&](const net::IpNetwork& network) { return network.contains(address); });
}

}  // namespace

// A UDP socket that is connected sends nothing.
Result<std::string> address_towards(const std::string& host, uint16_t port) {
  PDJOB_TRY(const std::vector<net::SocketAddress> found,
            net::resolve(host, port, net::HostForm::kNameOrNumeric));
  std::string why = "it has no address";
  for (const net::SocketAddress& to : found) {
    const net::Fd probe(socket(to.storage.ss_family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    net::SocketAddress own{.storage = {}, .size = sizeof own.storage};
    if (probe.valid() &&
        connect(probe.get(), reinterpret_cast<const sockaddr*>(&to.storage), to.size) == 0 &&
        getsockname(probe.get(), reinterpret_cast<sockaddr*>(&own.storage), &own.size) == 0) {
      return net::numeric_text(own);
    }
    why = std::strerror(errno);
  }
  return Error{ErrorCode::kUnavailable, "there is no way from here to " + host + ": " + why};
}

Result<std::string> address_by_choice(const std::string& choice) {
  PDJOB_TRY(const std::vector<net::OwnAddress> here, net::own_addresses());
  const auto network = net::IpNetwork::parse(choice);
  const auto fits = [&](const net::OwnAddress& own) {
    const auto bytes = net::ip_of(reinterpret_cast<const sockaddr&>(own.address.storage));
    return bytes && (network ? network->contains(*bytes)
                             : own.interface == choice && !is_link_local(*bytes));
  };
  const auto found = std::ranges::find_if(here, fits);
  if (found != here.end()) {
    return found->text;
  }
  std::string known;
  for (const net::OwnAddress& own : here) {
    known += (known.empty() ? "" : ", ") + own.text + " (" + own.interface + ")";
  }
  return Error{ErrorCode::kInvalidArgument,
               "no address of this machine fits " + choice + "; it has " + known};
}

}  // namespace pdjob::launcher
