// What an engine of another make says of itself: which routes it serves, which model and adapters
// it has. Its texts may be anything. Pure.
#pragma once

#include <string>
#include <vector>

#include "engine/recipes/engine_recipe.h"
#include "net/control/message.h"
#include "openai/replies/model_list.h"

namespace pdjob::worker {

// Those of `routes` that are paths of this OpenAPI document; all, if the text is none.
std::vector<std::string> listed_routes(std::vector<std::string> routes,
                                       const std::string& document);

// Takes the engine's list of models into its entry. Its first list also says since when it has its
// model, and how long a prompt may be: some engines give the time of their answer. Returns true if
// the entry has changed.
bool take_models(const openai::ListedModels& listed, net::WorkerEntry& entry);

}  // namespace pdjob::worker
