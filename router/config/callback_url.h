// Parses the callback URL of an asynchronous request and checks that the job file allows it. A
// router calls only receivers that its operator has listed. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "common/result.h"
#include "net/http/http_client.h"

namespace pdjob::router {

inline constexpr size_t kCallbackUrlBytesMax = 2048;
inline constexpr size_t kCallbackReceiversMax = 64;

// A receiver that may be called: a host, at one port or at any.
struct CallbackReceiver {
  std::string host;   // Lower case; compared as text, not by its addresses.
  uint16_t port = 0;  // 0: any.
};
// "host", "host:port" or "[::1]:port".
Result<CallbackReceiver> parse_callback_receiver(std::string_view text);

struct CallbackTarget {
  net::HttpAddress to;
  std::string path;  // With its query.
  size_t receiver = 0;
};
// Finds the first receiver that matches `url`. The error is for the client.
Result<CallbackTarget> find_callback_target(std::string_view url,
                                            const std::vector<CallbackReceiver>& receivers);

}  // namespace pdjob::router
