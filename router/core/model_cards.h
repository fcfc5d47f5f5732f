// The models of a router, as their workers describe them. Pure.
#pragma once

#include <cstdint>
#include <vector>

#include "openai/openai_reply.h"
#include "router/core/router.h"

namespace pdjob::router {

// By name, and adapters after all models. A model fits what the smallest of its workers fits, and
// is as old as the oldest of them. Without a worker that says so, it is as old as the router
// (`began`, in Unix seconds), and its context is unknown.
std::vector<openai::ModelCard> model_cards(const Router& router, int64_t began);

}  // namespace pdjob::router
