// What is said of a request that nobody waits for: to who asks, and to who is called. Pure.
#pragma once

#include <string>
#include <string_view>

#include "router/async_database.h"

namespace pdjob::router {

// `waits`: its status as long as there is no answer.
std::string async_body(std::string_view id, const AsyncFound& found, std::string_view waits);
std::string async_cancelled_body(std::string_view id);

}  // namespace pdjob::router
