// What engines of other makes serve besides the routes that pdjob knows. Their recipes say the same
// (engine/recipes); a router without a launcher has none. Pure.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "net/control/message.h"

namespace pdjob::router {

// As net::WorkerEntry::routes, of an engine that speaks this protocol.
std::vector<std::string> engine_routes(net::Protocol protocol, net::Role role);
// The makes that serve a POST of this path, for people: "vLLM", "vLLM and SGLang". Empty: none that
// is known.
std::string makes_that_serve(std::string_view path);

}  // namespace pdjob::router
