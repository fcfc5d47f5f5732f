// What an engine of another make finds on its machine: network interfaces, and variables that are
// set already.
#pragma once

#include <string>

#include "engine/recipes/foreign_config.h"

namespace pdjob::worker {

// Whoever runs this machine may have chosen its NICs and interfaces: a variable that is set here
// stays.
engine::EngineRecipe recipe_here(const engine::ForeignConfig& config, const std::string& host);

// The network interface with this address. Empty: there is none.
std::string interface_of(const std::string& host);

}  // namespace pdjob::worker
