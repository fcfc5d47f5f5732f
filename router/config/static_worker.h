// StaticWorker: a worker that a command line or a file names by its address. Value.
#pragma once

#include <cstdint>
#include <string_view>

#include "common/result.h"
#include "net/control/message.h"
#include "net/http/http_client.h"

namespace pdjob::router {

struct StaticWorker {
  net::Role role = net::Role::kBoth;
  net::HttpAddress address;
  uint16_t bootstrap_port = 0;  // Of a prefill worker; 0: RouterConfig::bootstrap_port.
  uint16_t kv_events_port = 0;  // 0: both as in RouterConfig::kv_events.
  uint16_t kv_replay_port = 0;
  friend bool operator==(const StaticWorker&, const StaticWorker&) = default;
};
// Like net::parse_http_address, plus an optional "?kv_events_port=N&kv_replay_port=N". A prefill
// worker may also have "bootstrap_port=N".
Result<StaticWorker> parse_static_worker(net::Role role, std::string_view url);

}  // namespace pdjob::router
