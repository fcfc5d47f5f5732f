// Where a client of an asynchronous request wants to be called, and whether the job file lets it: a
// router calls nobody in its network whom its operator has not listed. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "common/result.h"
#include "net/http_client.h"

namespace pdjob::router {

inline constexpr size_t kCallbackUrlBytesMax = 2048;
inline constexpr size_t kCallbackReceiversMax = 64;

// Who may be called: a host, at one port or at any.
struct CallbackReceiver {
  std::string host;   // In lower case; compared as it is written, not by what it resolves to.
  uint16_t port = 0;  // 0: any.
};
// "host", "host:port" or "[::1]:port".
Result<CallbackReceiver> parse_callback_receiver(std::string_view text);

struct CallbackTarget {
  net::HttpAddress to;
  std::string path;  // With its query.
  size_t receiver = 0;
};
// The first of the receivers that `url` is of. The error is for the client.
Result<CallbackTarget> find_callback_target(std::string_view url,
                                            const std::vector<CallbackReceiver>& receivers);

}  // namespace pdjob::router
