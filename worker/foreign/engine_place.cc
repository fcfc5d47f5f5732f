#include "worker/foreign/engine_place.h"

#include <algorithm>
#include <cstdlib>
#include <vector>

#include "net/loop/socket.h"

namespace pdjob::worker {

engine::EngineRecipe recipe_here(const engine::ForeignConfig& config, const std::string& host) {
  engine::EngineRecipe recipe = engine::recipe_at(config, host);
  for (engine::RecipePart* const part : {&recipe.near, &recipe.nodes}) {
    std::erase_if(part->environment, [](const std::string& variable) {
      return std::getenv(variable.substr(0, variable.find('=')).c_str()) != nullptr;
    });
  }
  return recipe;
}

std::string interface_of(const std::string& host) {
  const auto here = net::own_addresses();
  if (!here) {
    return "";
  }
  const auto own = std::ranges::find(*here, host, &net::OwnAddress::text);
  return own == here->end() ? "" : own->interface;
}

}  // namespace pdjob::worker
