// Decides who may be called back, and where a call goes. A router calls only receivers that its
// operator has listed, at addresses that are public or listed. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/result.h"
#include "net/outbound/ip_network.h"
#include "net/outbound/url.h"

namespace pdjob::router {

inline constexpr size_t kCallbackUrlBytesMax = 2048;
inline constexpr size_t kCallbackReceiversMax = 64;

// A receiver that may be called: a host at one port or at any, or a block of addresses.
struct CallbackReceiver {
  std::string host;   // Lower case; empty: only a block.
  uint16_t port = 0;  // 0: any.
  std::optional<net::IpNetwork> network;
};
// "host", "host:port", "[::1]:port" or "10.0.0.0/8".
Result<CallbackReceiver> parse_callback_receiver(std::string_view text);

struct CallbackTarget {
  net::Url url;
  size_t receiver = 0;
};
// Finds the first receiver that matches `url`. The error is for the client.
Result<CallbackTarget> find_callback_target(std::string_view url,
                                            const std::vector<CallbackReceiver>& receivers);

// True if a call of `host` may be connected to that address. A name may lead to public addresses,
// and to others only if `receivers` has a block with them: a name belongs to whoever answers for
// it. `localhost` may lead to this machine.
bool may_connect(std::string_view host, const net::IpAddress& address,
                 const std::vector<CallbackReceiver>& receivers);

}  // namespace pdjob::router
