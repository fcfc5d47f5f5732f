// The file of `pdjob router --config`: the workers by their addresses, and the `router` section of
// a job file. Value.
#pragma once

#include <string>
#include <vector>

#include "common/result.h"
#include "net/http_client.h"
#include "router/router_config.h"

namespace pdjob::launcher {

struct RouterFile {
  std::vector<net::HttpAddress> prefill;
  std::vector<net::HttpAddress> decode;
  std::vector<net::HttpAddress> both;  // Each does all of a request.
  router::RouterConfig router;
};

// kInvalidArgument: the message is the text of all errors, as config_reader.h has it.
Result<RouterFile> parse_router_file(const std::string& source, const std::string& text);
Result<RouterFile> read_router_file(const std::string& path);

}  // namespace pdjob::launcher
