// RouterOptions: all that a router process is started with. Value.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "common/result.h"
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
  // Reads the router's part of ProcessSpec::work, for one that changes while it runs.
  std::function<Result<RouterConfig>(const std::string& work)> read_work;
};

}  // namespace pdjob::router
