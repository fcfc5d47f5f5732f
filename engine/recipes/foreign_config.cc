#include "engine/recipes/foreign_config.h"

#include <algorithm>
#include <array>
#include <optional>
#include <string_view>

#include "common/check.h"
#include "common/config/config_file.h"
#include "common/config/config_text.h"
#include "common/parse_number.h"
#include "engine/recipes/options.h"

namespace pdjob::engine {
namespace {

constexpr std::string_view kCommand = "command";
constexpr uint16_t kPortMin = 1024;
// Options that would show a secret to everybody who can list processes.
constexpr auto kSecretOptions =
    std::to_array<std::string_view>({"--api-key", "--admin-api-key", "--hf-token"});

std::optional<PortBand> parse_band(std::string_view text) {
  const size_t dash = text.find('-');
  if (dash == std::string_view::npos) {
    return std::nullopt;
  }
  const auto first = parse_number<uint16_t>(text.substr(0, dash));
  const auto last = parse_number<uint16_t>(text.substr(dash + 1));
  if (!first || !last || *first < kPortMin || *first > *last) {
    return std::nullopt;
  }
  return PortBand{*first, *last};
}

void read_ports(ConfigReader& in, ForeignConfig& config) {
  std::string band = std::to_string(config.ports.first) + "-" + std::to_string(config.ports.last);
  in.field("ports", band,
           {"The ports of this machine that the engines may use: FIRST-LAST. An engine takes the "
            "first free ones at each start."});
  if (const auto parsed = parse_band(band)) {
    config.ports = *parsed;
  } else {
    in.fail("ports", "must be FIRST-LAST, both 1024..65535, such as 21000-21999; got " + band);
  }
}

void read_extras(ConfigReader& in, ForeignConfig& config) {
  in.field("kv_events", config.kv_events,
           {"Whether an engine of another make tells the router what is in its prefix cache "
            "(docs/how-to/prefix-routing.md). It does so only where the router's policy for it is "
            "prefix_aware."});
  in.field("features", config.features,
           {"What an engine of another make is to have switched on, by the names of its recipe: "
            "kv_checksum and decode_radix_cache of SGLang, priority and bidirectional_kv of vLLM. "
            "An engine "
            "that is too old for one of them is refused."});
}

// A recipe of `kind: command` may have errors, so it is known after it was read.
void check_features(ConfigReader& in, const ForeignConfig& config) {
  if (config.make.empty()) {
    return;
  }
  const EngineRecipe recipe = recipe_of(config);
  for (const std::string& name : config.features) {
    if (recipe.feature(name) == nullptr) {
      std::string known;
      for (const RecipeFeature& feature : recipe.features) {
        known += (known.empty() ? "" : ", ") + feature.name;
      }
      in.fail("features", recipe.name + " has no feature " + name + " here" +
                              (known.empty() ? "" : ": it has " + known));
    }
  }
}

void check_options(ConfigReader& in, const ForeignConfig& config) {
  for (const std::string& argument : config.args) {
    const std::string name = is_option(argument) ? option_name(argument) : "";
    if (std::ranges::find(kSecretOptions, name) != kSecretOptions.end()) {
      in.fail("args", name +
                          " shows a secret to everybody who can list processes: give it in the "
                          "environment of pdjob");
    }
    if (name == "--host") {
      in.fail("args",
              "--host cannot be set: an engine listens on the address of its node, because its key "
              "guards only a part of its routes");
    }
  }
  for (const std::string& variable : config.env) {
    if (const size_t equals = variable.find('='); equals == 0 || equals == std::string::npos) {
      in.fail("env", "must be a list of NAME=value, got " + variable);
    }
  }
}

void read_spread(ConfigReader& in, ForeignConfig& config) {
  in.section(
      "parallel",
      {"How an engine of another make is spread. Its recipe turns this into the engine's own "
       "options; such options in `args` count, too."},
      [&](ConfigReader& section) { read(section, config.parallel); });
  in.field("gpus", config.gpus,
           {"GPUs of one engine, over all its nodes. 0: as many as its parallel sizes take, if "
            "`gpu` is true."},
           {0, kEngineGpusMax});
  in.field("nodes", config.nodes,
           {"Nodes that one engine spans. All its parts start, serve and end together."},
           {1, kEngineNodesMax});
}

// The section, or the path of a file that holds its keys.
void read_recipe(ConfigReader& in, ForeignConfig& config) {
  if (in.written("recipe").empty()) {
    in.section("recipe",
               {"For `kind: command`: how the engine is started, watched and spoken to. Or the "
                "path of a file with these keys."},
               [&](ConfigReader& section) { read(section, config.recipe); });
    return;
  }
  std::string path;
  in.path("recipe", path, {"The file."});
  const auto text = read_config_file(path);
  const auto recipe = text ? parse_engine_recipe(path, *text) : Result<EngineRecipe>(text.error());
  if (!recipe) {
    in.fail("recipe", recipe.error().message);
    config.recipe.command = {path};  // One error is enough: `decode.engine` misses no recipe.
    return;
  }
  config.recipe = *recipe;
}

}  // namespace

void read(ConfigReader& in, ForeignConfig& config) {
  in.field("program", config.program,
           {"The program of an engine of another make, in place of its recipe's, such as "
            "/opt/venv/bin/vllm."});
  in.field(
      "args", config.args,
      {"More arguments of an engine of another make. An option that pdjob sets, too, is used "
       "as it stands here, and `pdjob plan` warns. Words such as {host}, {port} and {name} are "
       "filled in as in a recipe."});
  in.field(
      "env", config.env,
      {"More variables of an engine of another make: NAME=value, each. They win as `args` do."});
  read_ports(in, config);
  read_recipe(in, config);
  read_spread(in, config);
  read_extras(in, config);
  check_options(in, config);
  check_features(in, config);
  for (const char* const key :
       {"program", "args", "env", "ports", "parallel", "gpus", "nodes", "kv_events", "features"}) {
    if (config.make.empty() && in.has(key)) {
      in.fail(key, "is for engines of other makes; `kind` names pdjob's own");
    }
  }
  if (config.make != kCommand && in.has("recipe")) {
    in.fail("recipe", "is for `kind: command`");
  }
  if (config.make == kCommand && config.recipe.command.empty()) {
    in.fail("recipe", "is missing: `kind: command` takes its command from there");
  }
}

bool names_gpus(const ForeignConfig& config) {
  return std::ranges::any_of(config.env, [](const std::string& variable) {
    return variable.starts_with("CUDA_VISIBLE_DEVICES=");
  });
}

EngineRecipe recipe_of(const ForeignConfig& config) {
  PDJOB_CHECK(!config.make.empty());
  EngineRecipe recipe =
      config.make == kCommand ? config.recipe : shipped_engine_recipe(config.make);
  if (config.make == kCommand) {
    recipe.name = recipe.command.empty() ? std::string(kCommand) : recipe.command.front();
  }
  recipe.publishes = config.kv_events && !recipe.kv_events.part.args.empty();
  return recipe;
}

EngineRecipe recipe_at(const ForeignConfig& config, const std::string& host) {
  EngineRecipe recipe = recipe_of(config);
  recipe.publishes = recipe.publishes && host.find(':') == std::string::npos;
  return recipe;
}

std::string kv_events_hindrance(const ForeignConfig& config, std::string_view store,
                                uint32_t block_tokens) {
  const EngineRecipe recipe = recipe_of(config);
  const RecipeKvEvents& events = recipe.kv_events;
  const EngineShape shape = shape_of(config, false);
  if (events.part.args.empty()) {
    return "its recipe does not say how (`kv_events`)";
  }
  if (shape.nodes > 1 && shape.data > 1) {
    return "its data-parallel ranks are on several nodes, and the router knows the first one only";
  }
  auto set = option_of(config.args, events.block_option);
  if (const RecipeStore* const behind = recipe.store(store); behind != nullptr && !set) {
    set = option_of(behind->prefill.args, events.block_option);
  }
  const uint32_t block =
      set ? parse_number<uint32_t>(*set).value_or(block_tokens) : events.block_default;
  if (block % block_tokens != 0) {
    return "its blocks have " + std::to_string(block) + (block == 1 ? " token" : " tokens") +
           ", and the router follows blocks of " + std::to_string(block_tokens) +
           " tokens or a multiple: set " +
           (events.block_option.empty() ? "its block size" : events.block_option) +
           " to such a number, for both roles";
  }
  return "";
}

std::string own_kv_events_option(const ForeignConfig& config) {
  for (const std::string& argument : recipe_of(config).kv_events.part.args) {
    if (is_option(argument) && option_of(config.args, argument)) {
      return option_name(argument);
    }
  }
  return "";
}

ShapeWish shape_wish(const EngineRecipe& recipe, const ForeignConfig& config, bool gpu) {
  return {.options = recipe.parallel,
          .keys = config.parallel,
          .args = config.args,
          .gpus = config.gpus,
          .nodes = config.nodes,
          .computes_on_gpu = gpu};
}

EngineShape shape_of(const ForeignConfig& config, bool gpu) {
  const EngineRecipe recipe = recipe_of(config);
  return shape_of(shape_wish(recipe, config, gpu));
}

std::optional<ShapeProblem> part_problem(const EngineRecipe& recipe, const ForeignConfig& config,
                                         uint32_t gpu_percent) {
  if (gpu_percent == 100) {
    return std::nullopt;
  }
  const std::string part = portion_text(gpu_percent) + " of a GPU";
  if (const uint32_t ranks = shape_of(shape_wish(recipe, config, true)).ranks; ranks > 1) {
    return ShapeProblem{"gpu", "is " + part + ", and the engine has " + std::to_string(ranks) +
                                   " ranks: such an engine takes whole GPUs, `gpu: true`"};
  }
  for (size_t i = 0; i < recipe.gpu_part.args.size(); ++i) {
    const std::string& option = recipe.gpu_part.args[i];
    const auto own = is_option(option) ? option_of(config.args, option) : std::nullopt;
    const auto taken = own && option_value(recipe.gpu_part.args, i) == "{gpu_memory}"
                           ? parse_number<double>(*own)
                           : std::nullopt;
    if (taken && *taken > gpu_percent / 100.0) {
      return ShapeProblem{"args", option_name(option) + " " + *own +
                                      " takes more than the engine's " + part +
                                      ": leave it out, or give the engine more"};
    }
  }
  return std::nullopt;
}

uint32_t ports_of_engine(const ForeignConfig& config) {
  const EngineRecipe recipe = recipe_of(config);
  uint32_t ports = 0;
  for (const PortWord& word : port_words(recipe, shape_of(shape_wish(recipe, config, false)))) {
    ports += word.count;
  }
  return ports;
}

size_t band_offset(const ForeignConfig& config, uint64_t from) {
  const size_t offset = from % config.ports.size();
  const bool round = offset + ports_of_engine(config) > config.ports.size();
  return round && config.nodes > 1 ? 0 : offset;  // Its nodes find them without a search.
}

}  // namespace pdjob::engine
