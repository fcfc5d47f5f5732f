// ForeignConfig: what a job file says about an engine of another make. Value.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common/config/config_reader.h"
#include "engine/recipes/engine_recipe.h"
#include "engine/recipes/parallel.h"

namespace pdjob::engine {

// The ports that a node's engines may use.
struct PortBand {
  uint16_t first = 21000;
  uint16_t last = 21999;

  size_t size() const { return size_t{1} + last - first; }
  friend bool operator==(const PortBand&, const PortBand&) = default;
};

struct ForeignConfig {
  std::string make;               // The name of a recipe, or "command". Empty: pdjob's own engine.
  std::string program;            // In place of the recipe's.
  std::vector<std::string> args;  // Appended; each replaces the same option of the recipe.
  std::vector<std::string> env;   // NAME=value; the same.
  PortBand ports;
  Parallel parallel;
  uint32_t gpus = 0;  // Of one engine, over all its nodes; 0: as its parallel sizes say.
  uint32_t nodes = 1;
  // It tells what is in its prefix cache. A job sets this to false where nobody would listen.
  bool kv_events = true;
  std::vector<std::string> features;  // Of its recipe, by name.
  EngineRecipe recipe;                // Of "command".
};

// Declares the keys in `engine:` that are for engines of other makes. `config.make` is set already.
void read(ConfigReader& in, ForeignConfig& config);

// Whether the user names the GPUs of its engines by hand. pdjob does not know which they are.
bool names_gpus(const ForeignConfig& config);

// Requires: config.make is not empty.
EngineRecipe recipe_of(const ForeignConfig& config);
// The same for an engine that listens at this address. Engines publish KV events over IPv4 only.
EngineRecipe recipe_at(const ForeignConfig& config, const std::string& host);

// How its engines are spread. `gpu`: whether they compute on GPUs. The recipe must outlive the
// wish.
ShapeWish shape_wish(const EngineRecipe& recipe, const ForeignConfig& config, bool gpu);
EngineShape shape_of(const ForeignConfig& config, bool gpu);
// Why an engine cannot have such a part of a GPU; nothing: it can.
std::optional<ShapeProblem> part_problem(const EngineRecipe& recipe, const ForeignConfig& config,
                                         uint32_t gpu_percent);

// Why such an engine cannot tell its KV events to the router, or what would be wrong with them.
// `block_tokens`: the router knows blocks of multiples of so many. Empty: nothing is.
// `store`: the kind of the store of KV behind it; empty: none.
std::string kv_events_hindrance(const ForeignConfig& config, std::string_view store,
                                uint32_t block_tokens);
// The option of the user's that contradicts the recipe's KV events. Empty: there is none.
std::string own_kv_events_option(const ForeignConfig& config);

// How many ports one node of such an engine takes.
uint32_t ports_of_engine(const ForeignConfig& config);
// Where in the band its ports begin. Starts that follow each other have a `from` that grows by at
// least so many, so a port comes again only after all others.
size_t band_offset(const ForeignConfig& config, uint64_t from);

}  // namespace pdjob::engine
