// A router of another make as a process of the job: the shell around the ExternalRouter core. It
// starts and ends the program, calls it, and passes connections on to it (net/tcp_relay.h), so that
// clients keep one address whichever instance serves them.
#pragma once

#include <string>

#include "common/result.h"
#include "router/router_process.h"
#include "router/router_recipe.h"

namespace pdjob::router {

// Where the router's program is. An error says what to do about it.
Result<std::string> find_router_program(const RouterConfig& config, const RouterRecipe& recipe,
                                        bool plain);

// As run_router(), for RouterKind::kCommand.
int run_external_router(const RouterOptions& options);

}  // namespace pdjob::router
