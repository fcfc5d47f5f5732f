#include "engine/stores/store_program.h"

#include <array>

#include "common/check.h"
#include "common/config/shipped_files.h"

namespace pdjob::engine {
namespace {

constexpr auto kStores = std::to_array<ShippedFile>({
#include "engine/stores/shipped_recipes.inc"
});

// Below those of engines.
constexpr PortBand kPorts{20900, 20999};

constexpr std::string_view kMooncake = "mooncake";
constexpr std::string_view kLmcache = "lmcache";

EngineRecipe store_recipe(const std::string& name) {
  auto recipe = parse_engine_recipe(name, std::string(find_shipped(kStores, name)->text));
  PDJOB_CHECK(recipe.has_value(), recipe.error().message);
  return *std::move(recipe);
}

}  // namespace

bool has_master(std::string_view kind) { return kind == kMooncake; }

// Those of their own documents.
uint16_t usual_store_port(std::string_view kind) { return kind == kMooncake ? 50051 : 5555; }

bool serves_own_machine(std::string_view kind) { return kind == kLmcache; }

ForeignConfig program_of(const StoreProgram& store) {
  ForeignConfig config{.make = "command",
                       .ports = kPorts,
                       .recipe = store_recipe(store.kind + (store.is_master ? "_master" : ""))};
  if (!store.is_master) {
    config.args = store.args;
  }
  if (!store.folder.empty()) {
    config.program = store.folder + "/" + config.recipe.command.front();
  }
  return config;
}

}  // namespace pdjob::engine
