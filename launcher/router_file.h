// The file of `pdjob router --config`: the workers by their addresses, and the `router` section of
// a job file. Value.
#pragma once

#include <string>
#include <vector>

#include "common/result.h"
#include "router/router_config.h"
#include "router/static_workers.h"

namespace pdjob::launcher {

struct RouterFile {
  std::vector<router::StaticWorker> workers;
  router::RouterConfig router;
};

// kInvalidArgument: the message is the text of all errors, as config_reader.h has it.
Result<RouterFile> parse_router_file(const std::string& source, const std::string& text);
Result<RouterFile> read_router_file(const std::string& path);

}  // namespace pdjob::launcher
