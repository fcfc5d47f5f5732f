#include "launcher/convert/vllm_recipe.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <string_view>
#include <utility>

#include "common/config/config_text.h"
#include "common/parse_number.h"
#include "launcher/convert/hardware.h"
#include "launcher/convert/recipe_layout.h"
#include "launcher/convert/recipe_merge.h"
#include "launcher/convert/recipe_node.h"
#include "launcher/plan/vllm_kv_config.h"

namespace pdjob::launcher {
namespace {

constexpr uint32_t kStartSeconds = 3600;  // Large weights load for long.
constexpr const char* kStartVariable = "VLLM_ENGINE_READY_TIMEOUT_S";
constexpr auto kModes = std::to_array<std::pair<std::string_view, PoolMode>>(
    {{"tp", PoolMode::kTensor}, {"tep", PoolMode::kTensorExpert}, {"dep", PoolMode::kDataExpert}});
constexpr auto kSharedPolicies =
    std::to_array<std::string_view>({"round_robin", "random", "power_of_two", "consistent_hash"});

std::string list_of(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) {
    text.append(text.empty() ? "" : ", ").append(word);
  }
  return text;
}

bool has(const std::vector<std::string>& words, std::string_view word) {
  return std::ranges::find(words, word) != words.end();
}

// Warns of keys that pdjob does not know. The other known ones are for people, or for other
// strategies.
void know_keys(const RecipeChoice& choice) {
  choice.recipe.know({"meta", "model", "features", "opt_in_features", "hardware_opt_in_features",
                      "variants", "compatible_strategies", "default_strategy", "strategy_hardware",
                      "strategy_min_gpus", "hardware_overrides", "strategy_overrides",
                      "hardware_notes", "kv_offload_support", "dependencies", "guide"});
  choice.recipe["model"].know({"model_id", "min_vllm_version", "architecture", "parameter_count",
                               "active_parameters", "context_length", "base_args", "base_env",
                               "docker_image", "nightly_required", "install", "supports_dcp",
                               "flashinfer_autotune"});
  choice.variant().know({"label", "description", "precision", "vram_minimum_gb", "model_id",
                         "extra_args", "extra_env", "hardware_overrides", "tp",
                         "supported_hardware", "precision_hardware", "default_modes",
                         "min_vllm_version", "docker_image"});
  choice.overrides().know({"pool_modes", "prefill", "decode", "hardware_overrides", "env",
                           "extra_env", "extra_args", "vllm_args", "router"});
  choice.strategy.know({"name", "deploy_type", "display_name", "orientation", "description",
                        "hardware_match", "prefill", "decode", "parallel_flag", "router", "env",
                        "vllm_args"});
  for (const char* const role : {"prefill", "decode"}) {
    choice.overrides()[role].know({"parallelism", "nodes", "tp", "dp", "ep", "vllm_args",
                                   "extra_args", "env", "extra_env", "hardware_overrides",
                                   "parallel_flag"});
    choice.strategy[role].know(
        {"parallelism", "nodes", "tp", "dp", "ep", "vllm_args", "env", "parallel_flag"});
  }
}

void check_choice(const RecipeChoice& choice) {
  const RecipeNode variants = choice.recipe["variants"];
  if (!choice.variant().there()) {
    variants.fail("has no " + choice.variant_name + ": --variant is one of " +
                  list_of(variants.keys()));
  }
  const RecipeNode features = choice.recipe["features"];
  for (const std::string& feature : choice.features) {
    if (!features[feature.substr(0, feature.find('='))].there()) {
      features.fail("has no " + feature + ": --feature is one of " + list_of(features.keys()));
    }
  }
  if (choice.strategy["deploy_type"].text() != "pd_cluster") {
    choice.strategy["deploy_type"].fail("must be pd_cluster: prefill and decode apart");
  }
}

bool same_brand(std::string brand, const Hardware& hardware) {
  std::ranges::transform(brand, brand.begin(),
                         [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return brand == hardware.brand;
}

// NVFP4 and FP4 weights need Blackwell, unless the variant names its hardware.
bool runs_precision(const RecipeNode& variant, const Hardware& hardware) {
  const RecipeNode own = variant["precision_hardware"];
  const std::string precision = variant["precision"].text();
  if (!own.there()) {
    return (precision != "nvfp4" && precision != "fp4") || hardware.family == "blackwell";
  }
  const std::string family = own["generation"].text();
  const std::string brand = own["brand"].text();
  return (family.empty() || family == hardware.family) &&
         (brand.empty() || same_brand(brand, hardware));
}

// The recipe's authors know better, and the user may know more than they.
void warn_of_support(const RecipeChoice& choice) {
  const Hardware& hardware = *choice.hardware;
  const std::string name(hardware.name);
  const RecipeNode recipe = choice.recipe;
  const RecipeNode gate = for_hardware(recipe["strategy_hardware"]["pd_cluster"], hardware);
  const RecipeNode strategies = recipe["compatible_strategies"];
  if (gate.text() == "unsupported") {
    gate.warn("says that prefill and decode apart do not run on " + name);
  } else if (!has(strategies.texts(), "pd_cluster") && gate.text() != "supported") {
    strategies.warn("does not list pd_cluster: nobody has tried prefill and decode apart");
  }
  if (const RecipeNode support = recipe["meta"]["hardware"][name];
      support.text() == "unsupported") {
    support.warn("says that the model does not run on " + name);
  }
  const RecipeNode listed = choice.variant()["supported_hardware"];
  if (listed.there() && !has(listed.texts(), name)) {
    listed.warn("does not list " + name);
  }
  if (!runs_precision(choice.variant(), hardware)) {
    choice.variant()["precision"].warn(choice.variant()["precision"].text() +
                                       " is not for hardware such as " + name);
  }
  std::vector<std::string> commands;
  for (const RecipeNode& dependency : recipe["dependencies"].items()) {
    if (dependency["optional"].text() != "true") {
      commands.push_back(dependency["command"].text());
    }
  }
  if (!commands.empty()) {
    recipe["dependencies"].warn("vLLM's environment needs more, which pdjob does not install: " +
                                list_of(commands));
  }
}

// A key of the role: the recipe's, or else that of pd_cluster.yaml.
RecipeNode of_role(const RecipeChoice& choice, const std::string& role, const char* key) {
  const RecipeNode own = choice.overrides()[role][key];
  return own.there() ? own : choice.strategy[role][key];
}

// The modes that the recipe offers: each strategy's name ends with that of its mode.
std::vector<PoolMode> modes_of(const RecipeChoice& choice) {
  const std::vector<std::string> strategies = choice.recipe["compatible_strategies"].texts();
  const std::vector<std::string> narrowed = choice.overrides()["pool_modes"].texts();
  std::vector<PoolMode> offered;
  std::vector<PoolMode> kept;
  for (const auto& [word, mode] : kModes) {
    const std::string ending = std::string("_").append(word);
    const bool tensor = mode == PoolMode::kTensor;
    if (std::ranges::any_of(strategies, [&](const std::string& strategy) {
          return strategy.ends_with(ending) ||
                 (tensor && (strategy.ends_with("_tp_pp") || strategy.ends_with("_tp_dp")));
        })) {
      offered.push_back(mode);
      if (has(narrowed, word)) {
        kept.push_back(mode);
      }
    }
  }
  offered = kept.empty() ? offered : kept;
  return offered.empty() ? std::vector{PoolMode::kTensor} : offered;
}

std::string_view word_of(PoolMode wanted) {
  return std::ranges::find_if(kModes, [&](const auto& each) { return each.second == wanted; })
      ->first;
}

PoolMode mode_of(const RecipeChoice& choice, const std::string& role) {
  const RecipeNode written = of_role(choice, role, "parallelism");
  const auto* const known =
      std::ranges::find_if(kModes, [&](const auto& each) { return each.first == written.text(); });
  if (written.there() && known == kModes.end()) {
    written.fail("must be tp, tep or dep, got " + written.text());
  }
  const PoolMode wanted = known == kModes.end() ? PoolMode::kTensor : known->second;
  const std::vector<PoolMode> offered = modes_of(choice);
  if (std::ranges::find(offered, wanted) != offered.end()) {
    return wanted;
  }
  if (written.there()) {
    written.warn("is no mode that the recipe offers: " + std::string(word_of(offered.front())) +
                 " is used");
  }
  return offered.front();
}

uint32_t gpus_min_of(const RecipeNode& block, PoolMode mode) {
  if (!block.is_mapping()) {
    return block.number().value_or(0);
  }
  const std::string word(word_of(mode));
  for (const char* const scope : {"", "multi_node_", "single_node_"}) {
    const std::string key = scope + word;
    if (block[key].there()) {
      return block[key].number().value_or(0);
    }
  }
  return 0;
}

// What the options of a role say about its parallel sizes, before and behind the role's own.
struct WrittenSizes {
  VllmSizes early;
  VllmSizes late;
};

void put(std::optional<uint32_t>& size, std::optional<uint32_t> other) {
  size = size ? size : other;
}

EngineWish wish_of(const RecipeChoice& choice, const std::string& role,
                   const WrittenSizes& written) {
  EngineWish wish{.mode = mode_of(choice, role), .sizes = written.late};
  const bool tensor_only = wish.mode == PoolMode::kTensor;
  put(wish.sizes.tensor, of_role(choice, role, "tp").number());
  if (const RecipeNode tp = choice.variant()["tp"]; tensor_only && !wish.sizes.tensor) {
    wish.sizes.tensor = (tp.is_mapping() ? for_hardware(tp, *choice.hardware) : tp).number();
  }
  put(wish.sizes.data, of_role(choice, role, "dp").number());
  put(wish.sizes.pipeline, written.early.pipeline);
  put(wish.sizes.context, written.early.context);
  const RecipeNode ep = of_role(choice, role, "ep");
  wish.sizes.expert = written.late.expert.value_or(written.early.expert.value_or(
      !tensor_only || (ep.there() && ep.text() != "false" && ep.text() != "1")));
  wish.nodes =
      std::max(of_role(choice, role, "nodes").number().value_or(1), written.late.nodes.value_or(1));
  wish.memory_gb = choice.variant()["vram_minimum_gb"].number().value_or(0);
  const RecipeNode floors = choice.recipe["strategy_min_gpus"];
  wish.gpus_min = gpus_min_of(floors, wish.mode);
  if (floors.is_mapping()) {
    wish.gpus_min = std::max(wish.gpus_min, gpus_min_of(floors[choice.hardware->name], wish.mode));
  }
  return wish;
}

// What an option of the recipe's says about a size that its engines do not get.
void warn_of_sizes(const RecipeChoice& choice, const std::string& role, const VllmSizes& early,
                   const FittedEngine& shape) {
  const auto compare = [&](const char* option, std::optional<uint32_t> wanted,
                           std::optional<uint32_t> given) {
    const uint32_t taken = given.value_or(1);
    if (wanted.value_or(taken) != taken) {
      std::string text = option;
      text.append(" ").append(std::to_string(*wanted)).append(" of the recipe is not used: ");
      text.append("an engine of ").append(role).append(" takes ").append(std::to_string(taken));
      choice.overrides()[role].warn(text);
    }
  };
  compare("--tensor-parallel-size", early.tensor, shape.sizes.tensor);
  compare("--data-parallel-size", early.data, shape.sizes.data);
  for (const std::string& note : shape.notes) {
    std::string text = "an engine of ";
    choice.overrides()[role].warn(text.append(role).append(" ").append(note));
  }
}

// Takes the sizes out, and the options that pdjob derives.
WrittenSizes take_written(const RecipeChoice& choice, const std::string& role,
                          RoleOptions& options) {
  const RecipeNode place = choice.overrides()[role];
  std::vector<VllmTaken> wrong;
  const WrittenSizes written = {.early = take_sizes(options.early, wrong),
                                .late = take_sizes(options.late, wrong)};
  for (const VllmTaken& option : wrong) {
    place.fail(option.name + " must be a whole number from 1 on, got " + option.value);
  }
  for (VllmOptions* const some : {&options.early, &options.late}) {
    some->take("--port");
    if (some->take("--host")) {
      place.warn("--host is not used: an engine listens on the address of its node");
    }
    for (const VllmTaken& option : take_rendezvous(*some)) {
      place.warn(option.name +
                 " is not used: pdjob tells the parts of an engine where they are, and the ranks "
                 "of an engine have one port");
    }
  }
  return written;
}

struct RoleResult {
  WrittenSizes written;
  EngineWish wish;
  VllmOptions options;
  std::string served_name;
  NativeRole native;
};

RoleResult read_role(const RecipeChoice& choice, const std::string& role) {
  RoleResult result;
  RoleOptions options = role_options(choice, role);
  result.written = take_written(choice, role, options);
  result.wish = wish_of(choice, role, result.written);
  result.options = options.early;
  result.options.merge(options.late);
  result.options.take("--model");
  result.served_name = result.options.take("--served-model-name").value_or("");
  std::string kv_config;
  if (const auto written = result.options.take("--kv-transfer-config")) {
    const RecipeNode place = choice.strategy[role]["vllm_args"];
    const VllmKvConfig config = vllm_kv_config({.role = role, .gpu = true}, *written);
    if (!config.error.empty()) {
      place.fail("--kv-transfer-config " + config.error);
    }
    for (const std::string& warning : config.warnings) {
      place.warn("--kv-transfer-config: " + warning);
    }
    kv_config = config.passed;
  }
  result.native.environment = options.environment;
  result.native.args = result.options.args();
  if (!kv_config.empty()) {
    result.native.args.push_back("--kv-transfer-config=" + kv_config);
  }
  if (const RecipeNode flag = of_role(choice, role, "parallel_flag");
      flag.there() && flag.text() != "--tensor-parallel-size") {
    flag.warn("is not used: `parallelism` says how an engine is split");
  }
  return result;
}

void give_shape(const RecipeChoice& choice, const std::string& role, const FittedEngine& shape,
                uint32_t workers, RoleResult& result) {
  warn_of_sizes(choice, role, result.written.early, shape);
  result.native.sizes = shape.sizes;
  result.native.workers = workers;
  if (shape.nodes > 1) {
    choice.overrides()[role].warn(
        "an engine of " + role + " spans " + std::to_string(shape.nodes) +
        " nodes: name their network interface by NCCL_SOCKET_IFNAME and GLOO_SOCKET_IFNAME in "
        "engine.env, unless there is only one");
  }
}

VllmRouter router_of(const RecipeChoice& choice) {
  VllmRouter router{.listen = "127.0.0.1:8000"};
  const RecipeNode own = choice.overrides()["router"];
  for (const RecipeNode& section : {own, choice.strategy["router"]}) {
    for (const std::string& key : section.keys()) {
      const std::string value = section[key].text();
      const bool known =
          key == "policy" && std::ranges::find(kSharedPolicies, value) != kSharedPolicies.end();
      if (known && router.policy.empty()) {
        router.policy = value;
      } else if (!known) {
        section[key].warn("is not used: pdjob's own router has no such key or value");
      }
    }
  }
  return router;
}

uint32_t start_seconds(const NativeRole& role) {
  const auto found = role.environment.find(kStartVariable);
  const auto written =
      found == role.environment.end() ? std::nullopt : parse_number<uint32_t>(found->second);
  return std::clamp(written.value_or(kStartSeconds), kStartSeconds, 24 * 3600U);
}

std::string nodes_text(uint32_t nodes) {
  return std::to_string(nodes) + (nodes == 1 ? " node" : " nodes");
}

// What a reader of the job file wants to know, and no key says.
std::string preamble(const RecipeChoice& choice, const std::string& source, const Layout& layout) {
  const std::string file = source.substr(source.find_last_of('/') + 1);
  const RecipeNode own = choice.variant()["min_vllm_version"];
  const std::string version =
      (own.there() ? own : choice.recipe["model"]["min_vllm_version"]).text();
  std::string text = "# vLLM's recipe " + file + ", variant " + choice.variant_name + ", for " +
                     nodes_text(layout.nodes) + " of " + std::string(choice.hardware->name) + ".";
  text += version.empty() ? "" : " It needs vLLM " + version + " or later.";
  return printable(text, 400) + "\n";
}

std::string wrong_nodes(const RecipeRequest& request, const Layout& layout) {
  return request.recipe.name + ": warning: --nodes: " + nodes_text(*request.nodes - layout.nodes) +
         " of " + std::to_string(*request.nodes) + " not used: no further engine fits\n";
}

}  // namespace

Result<NativeJob> native_job_of_recipe(const RecipeRequest& request) {
  RecipeFile recipe(request.recipe.name, request.recipe.text);
  RecipeFile strategy(request.strategy.name, request.strategy.text);
  const auto refused = [&](const std::string& more = "") {
    return Error{ErrorCode::kInvalidArgument, recipe.errors() + strategy.errors() + more};
  };
  const RecipeChoice choice = {.recipe = recipe.root(),
                               .strategy = strategy.root(),
                               .hardware = find_hardware(request.hardware),
                               .variant_name = request.variant,
                               .features = request.features};
  if (choice.hardware == nullptr) {
    return refused("--hardware: must be one of " + hardware_names() + ", got " +
                   printable(request.hardware, 40) + "\n");
  }
  if (!choice.recipe.there() || !choice.strategy.there()) {
    return refused();
  }
  check_choice(choice);
  know_keys(choice);
  warn_of_support(choice);
  RoleResult prefill = read_role(choice, "prefill");
  RoleResult decode = read_role(choice, "decode");
  if (!recipe.errors().empty() || !strategy.errors().empty()) {
    return refused();
  }
  const auto layout = layout_of(*choice.hardware, request.nodes, prefill.wish, decode.wish);
  if (!layout) {
    return refused(request.recipe.name + ": " + layout.error().message + "\n");
  }
  give_shape(choice, "prefill", layout->prefill, layout->prefill_workers, prefill);
  give_shape(choice, "decode", layout->decode, layout->decode_workers, decode);
  const RecipeNode variant = choice.variant();
  const RecipeNode model =
      variant["model_id"].there() ? variant["model_id"] : choice.recipe["model"]["model_id"];
  if (model.text().empty()) {
    model.fail("is missing: which model do the engines run?");
  }
  if (prefill.served_name != decode.served_name) {
    choice.overrides().fail("--served-model-name must be the same for prefill and decode");
  }
  const NativeParts parts = {
      .name = job_name_of(request.recipe.name),
      .model = model.text(),
      .served_name = prefill.served_name.empty() ? model.text() : prefill.served_name,
      .prefill = prefill.native,
      .decode = decode.native,
      .router = router_of(choice),
      .start_seconds = std::max(start_seconds(prefill.native), start_seconds(decode.native))};
  if (!recipe.errors().empty() || !strategy.errors().empty()) {
    return refused();
  }
  std::string warnings = recipe.warnings() + strategy.warnings();
  if (request.nodes.value_or(layout->nodes) > layout->nodes) {
    warnings += wrong_nodes(request, *layout);
  }
  return NativeJob{.yaml = preamble(choice, request.recipe.name, *layout) + native_text(parts),
                   .warnings = warnings};
}

}  // namespace pdjob::launcher
