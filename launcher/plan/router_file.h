// The file of `pdjob router --config`: the addresses of the workers, and the `router` section of a
// job file. Value.
#pragma once

#include <string>
#include <vector>

#include "common/result.h"
#include "router/config/router_config.h"
#include "router/members/static_workers.h"

namespace pdjob::launcher {

struct RouterFile {
  std::vector<router::StaticWorker> workers;
  router::RouterConfig router;
};

// kInvalidArgument: the message lists the errors, in the form of config_reader.h.
Result<RouterFile> parse_router_file(const std::string& source, const std::string& text);
Result<RouterFile> read_router_file(const std::string& path);

}  // namespace pdjob::launcher
