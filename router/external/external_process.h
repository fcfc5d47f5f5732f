// Runs an external router as a process of the job: the shell around the ExternalRouter core. It
// starts and ends the program, calls it over HTTP, and passes connections on to it
// (net/loop/tcp_relay.h). So clients keep one address while instances change.
#pragma once

#include <string>

#include "common/result.h"
#include "router/config/router_options.h"
#include "router/recipes/router_recipe.h"

namespace pdjob::router {

// Finds the router's program. An error says what to do about it.
Result<std::string> find_router_program(const RouterConfig& config, const RouterRecipe& recipe,
                                        bool plain);

// Like run_router(), for RouterKind::kCommand.
int run_external_router(const RouterOptions& options);

}  // namespace pdjob::router
