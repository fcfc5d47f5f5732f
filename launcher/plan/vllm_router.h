// The `scheduler` section of vLLM's own `pdjob` file: the command that starts its router, with
// placeholders for the addresses of workers. pdjob knows some of these routers by a recipe, which
// writes the command anew whenever a worker comes or goes. Value; the function is Pure.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/config/config_reader.h"

namespace pdjob::launcher {

struct VllmRouter {
  std::string listen;             // HOST:PORT
  std::string policy;             // Of pdjob's own router, for both roles. Empty: its default.
  std::string recipe;             // Empty: pdjob's own router.
  std::string program;            // Empty: the recipe's.
  std::vector<std::string> args;  // More than the recipe's.
};

// How many workers of each role there are, which the placeholders number from 1.
struct VllmPeers {
  uint32_t prefill = 1;
  uint32_t decode = 1;
};

// Reads the keys of the section `scheduler`. It reports errors and warnings there.
VllmRouter read_vllm_router(ConfigReader& in, const VllmPeers& peers);

}  // namespace pdjob::launcher
