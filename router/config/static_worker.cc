#include "router/config/static_worker.h"

#include <algorithm>
#include <string>

#include "common/parse_number.h"

namespace pdjob::router {
namespace {

uint16_t* port_called(std::string_view name, StaticWorker& worker) {
  if (name == "kv_events_port") {
    return &worker.kv_events_port;
  }
  if (name == "kv_replay_port") {
    return &worker.kv_replay_port;
  }
  const bool has_bootstrap = worker.role == net::Role::kPrefill;
  return has_bootstrap && name == "bootstrap_port" ? &worker.bootstrap_port : nullptr;
}

}  // namespace

Result<StaticWorker> parse_static_worker(net::Role role, std::string_view url) {
  const size_t query = std::min(url.find('?'), url.size());
  StaticWorker worker{.role = role};
  PDJOB_TRY(worker.address, net::parse_http_address(url.substr(0, query)));
  std::string_view words = url.substr(query);
  while (!words.empty()) {
    words.remove_prefix(1);
    const std::string_view word = words.substr(0, words.find('&'));
    words.remove_prefix(word.size());
    const size_t equals = std::min(word.find('='), word.size());
    uint16_t* const port = port_called(word.substr(0, equals), worker);
    if (port != nullptr && equals < word.size()) {
      *port = parse_number<uint16_t>(word.substr(equals + 1)).value_or(0);
    }
    if (port == nullptr || *port == 0) {
      return Error{ErrorCode::kInvalidArgument,
                   "behind an address only ?kv_events_port=N and kv_replay_port=N are known, and "
                   "bootstrap_port=N of a prefill worker: \"" +
                       std::string(url) + '"'};
    }
  }
  if (worker.kv_replay_port > 0 && worker.kv_events_port == 0) {
    return Error{ErrorCode::kInvalidArgument,
                 "kv_replay_port is of no use without kv_events_port: \"" + std::string(url) + '"'};
  }
  return worker;
}

}  // namespace pdjob::router
