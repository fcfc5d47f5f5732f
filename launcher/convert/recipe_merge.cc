#include "launcher/convert/recipe_merge.h"

#include <algorithm>
#include <array>
#include <optional>
#include <string_view>
#include <utility>

namespace pdjob::launcher {
namespace {

// Tuned for nodes that share one NVLink domain, and useless or harmful on others.
constexpr auto kOfNvlinkNodes =
    std::to_array<std::string_view>({"VLLM_USE_NCCL_SYMM_MEM", "NCCL_CUMEM_ENABLE",
                                     "NCCL_MNNVL_ENABLE", "NCCL_NVLS_ENABLE", "UCX_NET_DEVICES"});
constexpr auto kSetByPdjob = std::to_array<std::string_view>(
    {"VLLM_NIXL_SIDE_CHANNEL_HOST", "VLLM_NIXL_SIDE_CHANNEL_PORT", "CUDA_VISIBLE_DEVICES"});

bool is_one_of(std::string_view name, const auto& names) {
  return std::ranges::find(names, name) != names.end();
}

// A part of `hardware_overrides`: of the family, or else of the brand.
RecipeNode of_family(const RecipeNode& overrides, const Hardware& hardware) {
  const RecipeNode family = overrides[hardware.family];
  return family.there() ? family : overrides[hardware.brand];
}

void know_hardware(const RecipeNode& overrides) {
  for (const std::string& key : overrides.keys()) {
    if (!is_hardware_key(key)) {
      overrides[key].warn("is not used: pdjob knows no such hardware");
    }
    overrides[key].know({"extra_args", "extra_env", "docker_image"});
  }
}

// An option that stands with its value in one text is read as both.
std::vector<std::string> words_of(const RecipeNode& list) {
  std::vector<std::string> words;
  for (const RecipeNode& item : list.items()) {
    const std::string text = item.text();
    const auto split = shell_words(text);
    if (text.starts_with("--") && text.find('=') == std::string::npos && split &&
        split->size() > 1) {
      item.warn("is one text, and is read as " + std::to_string(split->size()) + ": " + text);
      words.insert(words.end(), split->begin(), split->end());
    } else {
      words.push_back(text);
    }
  }
  return words;
}

void add_args(const RecipeNode& list, VllmOptions& options) {
  VllmOptions later;
  later.set_words(words_of(list));
  options.merge(later);
}

void add_environment(const RecipeNode& mapping, const Hardware& hardware,
                     std::map<std::string, std::string>& environment) {
  std::string of_nvlink;
  for (const auto& [name, value] : mapping.pairs()) {
    if (is_one_of(name, kSetByPdjob)) {
      continue;
    }
    if (!hardware.nvlink_across_nodes && is_one_of(name, kOfNvlinkNodes)) {
      of_nvlink.append(of_nvlink.empty() ? "" : ", ").append(name);
    } else if (value.starts_with('$')) {
      mapping[name].warn("is not used: " + value + " is a place for you to fill in");
    } else {
      environment[name] = value;
    }
  }
  if (!of_nvlink.empty()) {
    mapping.warn("without " + of_nvlink +
                 ": they are for nodes that share one NVLink domain, such as gb200");
  }
}

// Recipes replace what they say about a family as a whole.
void warn_of_replaced(const std::vector<RecipeNode>& parts, const RecipeNode& instead) {
  std::string lost;
  const auto add = [&](const std::string& word) {
    lost.append(lost.empty() ? "" : " ").append(word);
  };
  for (const RecipeNode& part : parts) {
    std::ranges::for_each(part["extra_args"].texts(), add);
    std::ranges::for_each(part["extra_env"].keys(), add);
  }
  if (!lost.empty()) {
    instead.warn("takes the place of what the recipe says for other strategies, so it is without " +
                 lost);
  }
}

// The parts of `hardware_overrides` that stand behind those of the role, in order.
std::vector<RecipeNode> hardware_parts(const RecipeChoice& choice, const std::string& role) {
  const Hardware& hardware = *choice.hardware;
  const RecipeNode of_recipe = choice.recipe["hardware_overrides"];
  const RecipeNode of_variant = choice.variant()["hardware_overrides"];
  const RecipeNode of_strategy = choice.overrides()["hardware_overrides"];
  const RecipeNode of_role = choice.overrides()[role]["hardware_overrides"];
  for (const RecipeNode& overrides : {of_recipe, of_variant, of_strategy, of_role}) {
    know_hardware(overrides);
  }
  std::vector<RecipeNode> parts = {of_family(of_recipe, hardware), of_recipe[hardware.name],
                                   of_family(of_variant, hardware)};
  if (const RecipeNode instead = of_family(of_strategy, hardware); instead.there()) {
    warn_of_replaced(parts, instead);
    parts = {instead};
  }
  parts.push_back(of_strategy[hardware.name]);
  parts.push_back(of_family(of_role, hardware));
  parts.push_back(of_role[hardware.name]);
  return parts;
}

// The mode of a feature that offers several, such as ways of speculative decoding.
std::optional<RecipeNode> mode_of(const RecipeChoice& choice, const RecipeNode& feature,
                                  const std::string& name, const std::string& asked) {
  const RecipeNode modes = feature["modes"];
  std::vector<std::string> allowed;
  for (const std::string& mode : modes.keys()) {
    modes[mode].know(
        {"label", "description", "args", "hardware", "hardware_overrides", "variants"});
    const std::vector<std::string> variants = modes[mode]["variants"].texts();
    const bool of_variant = variants.empty() || is_one_of(choice.variant_name, variants);
    if (of_variant &&
        for_hardware(modes[mode]["hardware"], *choice.hardware).text() != "unsupported") {
      allowed.push_back(mode);
    }
  }
  for (const std::string& wish :
       {asked, choice.variant()["default_modes"][name].text(), feature["default_mode"].text()}) {
    if (!wish.empty() && is_one_of(wish, allowed)) {
      return modes[wish];
    }
    if (!wish.empty() && wish == asked) {
      modes.fail("has no mode " + asked + " for this variant on this hardware");
      return std::nullopt;
    }
  }
  if (allowed.empty()) {
    modes.fail("has no mode for this variant on this hardware");
    return std::nullopt;
  }
  return modes[allowed.front()];
}

void add_feature(const RecipeChoice& choice, const std::string& asked, VllmOptions& options) {
  const size_t equals = asked.find('=');
  const std::string name = asked.substr(0, equals);
  RecipeNode feature = choice.recipe["features"][name];
  if (!feature.there()) {
    return;  // Reported already.
  }
  feature.know({"label", "description", "args", "hardware_overrides", "modes", "default_mode",
                "strategies", "companion"});
  const std::vector<std::string> strategies = feature["strategies"].texts();
  if (!strategies.empty() && !is_one_of("pd_cluster", strategies)) {
    feature["strategies"].fail("do not include pd_cluster, so " + name + " cannot be used here");
  }
  if (feature["companion"].there()) {
    feature["companion"].warn("is a process that pdjob does not start: start it yourself");
  }
  const std::string mode = equals == std::string::npos ? "" : asked.substr(equals + 1);
  if (feature["modes"].there()) {
    const auto found = mode_of(choice, feature, name, mode);
    if (!found) {
      return;
    }
    feature = *found;
  } else if (!mode.empty()) {
    feature.fail("has no modes, got " + mode);
  }
  const RecipeNode special = for_hardware(feature["hardware_overrides"], *choice.hardware)["args"];
  add_args(special.there() ? special : feature["args"], options);
}

}  // namespace

RecipeNode for_hardware(const RecipeNode& mapping, const Hardware& hardware) {
  for (const std::string_view key : {hardware.name, hardware.family, hardware.brand}) {
    if (const RecipeNode value = mapping[key]; value.there()) {
      return value;
    }
  }
  return mapping["default"];
}

RoleOptions role_options(const RecipeChoice& choice, const std::string& role) {
  const RecipeNode model = choice.recipe["model"];
  const RecipeNode variant = choice.variant();
  const RecipeNode of_variant = variant["hardware_overrides"][choice.hardware->name];
  const RecipeNode overrides = choice.overrides();
  const RecipeNode strategy = choice.strategy;
  RoleOptions all;
  for (const RecipeNode& list :
       {model["base_args"], variant["extra_args"], of_variant["extra_args"], strategy["vllm_args"],
        strategy[role]["vllm_args"]}) {
    add_args(list, all.early);
  }
  for (const RecipeNode& list : {overrides["extra_args"], overrides["vllm_args"],
                                 overrides[role]["extra_args"], overrides[role]["vllm_args"]}) {
    add_args(list, all.late);
  }
  std::vector<RecipeNode> mappings = {
      model["base_env"],      variant["extra_env"],   of_variant["extra_env"],
      strategy["env"],        strategy[role]["env"],  overrides["env"],
      overrides["extra_env"], overrides[role]["env"], overrides[role]["extra_env"]};
  for (const RecipeNode& part : hardware_parts(choice, role)) {
    add_args(part["extra_args"], all.late);
    mappings.push_back(part["extra_env"]);
  }
  for (const RecipeNode& mapping : mappings) {
    add_environment(mapping, *choice.hardware, all.environment);
  }
  for (const std::string& feature : choice.features) {
    add_feature(choice, feature, all.late);
  }
  return all;
}

}  // namespace pdjob::launcher
