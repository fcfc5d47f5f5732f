// RouterOptions: all that a router process is started with. Value.
#pragma once

#include <string>
#include <vector>

#include "net/control/process_spec.h"
#include "router/config/router_config.h"
#include "router/config/static_worker.h"

namespace pdjob::router {

struct RouterOptions {
  net::ProcessSpec spec;  // Empty spec.control: stand-alone, with the static workers below.
  RouterConfig config;
  std::vector<StaticWorker> workers;
  std::string worker_key;  // The key of all static workers; empty: they want none.
  bool plain = false;      // No worker is a prefill worker.
};

}  // namespace pdjob::router
