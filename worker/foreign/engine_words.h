// What a worker says to an engine of another make and hears from it, by its recipe. Pure.
#pragma once

#include <string>
#include <vector>

#include "engine/recipes/engine_recipe.h"
#include "net/control/message.h"

namespace pdjob::worker {

// `word`: of recipe_protocols().
net::Protocol protocol_of(const std::string& word);

std::string warm_up_body(const std::string& model);

// Lines of an access log about our own questions, one or two a second.
std::vector<std::string> access_lines(const engine::EngineRecipe& recipe);

}  // namespace pdjob::worker
