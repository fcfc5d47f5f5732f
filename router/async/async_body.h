// JSON bodies about an asynchronous request, for the client that asks and for the callback. Pure.
#pragma once

#include <string>
#include <string_view>

#include "router/async/async_database.h"

namespace pdjob::router {

// `waits`: the status to report while there is no answer.
std::string async_body(std::string_view id, const AsyncFound& found, std::string_view waits);
std::string async_deleted_body(std::string_view id, bool was_alive);

}  // namespace pdjob::router
