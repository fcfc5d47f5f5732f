// ForeignConfig: what a job file says about an engine of another make. Value.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/config/config_reader.h"
#include "engine/recipes/engine_recipe.h"

namespace pdjob::engine {

// The ports that a node's engines may use.
struct PortBand {
  uint16_t first = 21000;
  uint16_t last = 21999;
  friend bool operator==(const PortBand&, const PortBand&) = default;
};

struct ForeignConfig {
  std::string make;               // The name of a recipe, or "command". Empty: pdjob's own engine.
  std::string program;            // In place of the recipe's.
  std::vector<std::string> args;  // Appended; each replaces the same option of the recipe.
  std::vector<std::string> env;   // NAME=value; the same.
  PortBand ports;
  EngineRecipe recipe;  // Of "command".
};

// Declares the keys in `engine:` that are for engines of other makes. `config.make` is set already.
void read(ConfigReader& in, ForeignConfig& config);

// Requires: config.make is not empty.
EngineRecipe recipe_of(const ForeignConfig& config);

}  // namespace pdjob::engine
