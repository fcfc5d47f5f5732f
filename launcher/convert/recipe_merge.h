// The options and variables that a recipe of vLLM has for one role, of all places where they may
// stand. Later places win, in the order of the site that publishes the recipes. Pure, but that it
// reports to the files' nodes.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "launcher/convert/hardware.h"
#include "launcher/convert/recipe_node.h"
#include "launcher/plan/vllm_options.h"

namespace pdjob::launcher {

// What is chosen of a recipe.
struct RecipeChoice {
  RecipeNode recipe;
  RecipeNode strategy;  // pd_cluster.yaml
  const Hardware* hardware = nullptr;
  std::string variant_name;
  std::vector<std::string> features;  // NAME, or NAME=MODE.

  RecipeNode variant() const { return recipe["variants"][variant_name]; }
  RecipeNode overrides() const { return recipe["strategy_overrides"]["pd_cluster"]; }
};

// The value of a mapping for this hardware: of its name, its family, its brand, or `default`.
RecipeNode for_hardware(const RecipeNode& mapping, const Hardware& hardware);

struct RoleOptions {
  // The parallel sizes of the role stand between these two: they win over the first ones.
  VllmOptions early;
  VllmOptions late;
  std::map<std::string, std::string> environment;
};

RoleOptions role_options(const RecipeChoice& choice, const std::string& role);

}  // namespace pdjob::launcher
