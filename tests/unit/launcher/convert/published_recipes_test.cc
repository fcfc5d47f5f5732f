// Recipes as vLLM publishes them, as job files: their flags and variables as sets, sizes that hold
// the model, and the golden plans with all command lines. The rules of the recipes are written here
// a second time.
#include <cctype>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <sstream>

#include <gtest/gtest.h>

#include "common/config/config_document.h"
#include "launcher/convert/hardware.h"
#include "launcher/convert/vllm_recipe.h"
#include "launcher/plan/job_config.h"
#include "launcher/plan/launch_plan.h"
#include "tests/unit/launcher/plan/case_file.h"

namespace pdjob::launcher {
namespace {

using Pairs = std::map<std::string, std::string>;
using Texts = std::vector<std::string>;
namespace fs = std::filesystem;

const Texts kRoles = {"prefill", "decode"};

std::string text_of(const fs::path& path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

// Each text is read once, because sanitizers make that slow.
const ConfigNode& tree_of(const std::string& text) {
  static std::map<std::string, ConfigNode> trees;
  const auto [tree, added] = trees.try_emplace(text);
  if (added) {
    ConfigErrors errors("", text);
    auto root = parse_config_document(text, errors);
    EXPECT_TRUE(root.has_value()) << errors.text();
    tree->second = root ? std::move(*root) : ConfigNode{};
  }
  return tree->second;
}

// Nothing where a key is missing.
const ConfigNode& at(const ConfigNode& node, const Texts& keys) {
  static const ConfigNode nothing;
  const ConfigNode* found = &node;
  for (const std::string& key : keys) {
    const ConfigEntry* const entry = found->find(key);
    found = entry == nullptr ? &nothing : &entry->value;
  }
  return *found;
}

uint32_t number_at(const ConfigNode& node, const Texts& keys, uint32_t otherwise) {
  const std::string text = at(node, keys).text;
  return text.empty() ? otherwise : static_cast<uint32_t>(std::stoul(text));
}

void add_words(const ConfigNode& list, Texts& words) {
  for (const ConfigNode& item : list.items) {
    std::istringstream parts(item.text);
    std::string part;
    const bool several = item.text.starts_with("--") && item.text.find(' ') != std::string::npos;
    while (several && parts >> part) {
      words.push_back(part);
    }
    if (!several) {
      words.push_back(item.text);
    }
  }
}

void add_pairs(const ConfigNode& mapping, Pairs& pairs) {
  for (const ConfigEntry& entry : mapping.entries) {
    pairs[entry.key] = entry.value.text;
  }
}

// Each flag with its values. A later one replaces an earlier one, and its opposite.
Pairs flags_of(const Texts& words) {
  static const std::map<std::string, std::string> longer = {{"-tp", "--tensor-parallel-size"},
                                                            {"-ep", "--enable-expert-parallel"}};
  Pairs flags;
  std::string last;
  for (const std::string& word : words) {
    if (word.size() < 2 || word[0] != '-' || std::isdigit(static_cast<unsigned char>(word[1]))) {
      flags[last] += (flags[last].empty() ? "" : " ") + word;
      continue;
    }
    const size_t equals = word.find('=');
    last = word.substr(0, equals);
    const size_t end = std::min(last.find('.'), last.size());
    std::replace(last.begin(), last.begin() + static_cast<std::ptrdiff_t>(end), '_', '-');
    last = longer.contains(last) ? longer.at(last) : last;
    flags.erase(last.starts_with("--no-") ? "--" + last.substr(5) : "--no-" + last.substr(2));
    flags[last] = equals == std::string::npos ? "" : word.substr(equals + 1);
  }
  return flags;
}

struct Wanted {
  Pairs flags;
  Pairs environment;
};

struct Published {
  std::string name;  // Of the model's file, without its ending.
  fs::path folder;   // That of pd_cluster.yaml.
  const Hardware* hardware = nullptr;

  std::string label() const { return name + " " + std::string(hardware->name); }
  RecipeRequest request() const {
    const fs::path recipe = folder / "models" / (name + ".yaml");
    return {.recipe = {.name = name + ".yaml", .text = text_of(recipe)},
            .strategy = {.name = "pd_cluster.yaml", .text = text_of(folder / "pd_cluster.yaml")},
            .hardware = std::string(hardware->name)};
  }
};

void leave_out(Wanted& wanted, const Hardware& hardware) {
  std::erase_if(wanted.flags, [](const auto& flag) {
    static const std::set<std::string> derived = {
        "--port",
        "--kv-transfer-config",
        "--served-model-name",
        "--data-parallel-hybrid-lb",
        "--tensor-parallel-size",
        "--enable-expert-parallel",
    };
    return derived.contains(flag.first);
  });
  std::erase_if(wanted.environment, [&](const auto& variable) {
    static const std::set<std::string> of_nvlink = {"VLLM_USE_NCCL_SYMM_MEM", "NCCL_CUMEM_ENABLE",
                                                    "NCCL_MNNVL_ENABLE", "NCCL_NVLS_ENABLE",
                                                    "UCX_NET_DEVICES"};
    return variable.first.starts_with("VLLM_NIXL_SIDE_CHANNEL_") ||
           (!hardware.nvlink_across_nodes && of_nvlink.contains(variable.first));
  });
}

// What a role of the recipe has at all places where it may stand, in the site's order.
Wanted wanted_of(const Published& published, const std::string& role) {
  const RecipeRequest request = published.request();
  const ConfigNode& recipe = tree_of(request.recipe.text);
  const ConfigNode& strategy = tree_of(request.strategy.text);
  const ConfigNode& variant = at(recipe, {"variants", "default"});
  const ConfigNode& over = at(recipe, {"strategy_overrides", "pd_cluster"});
  const std::string exact(published.hardware->name);
  const auto of_family = [&](const ConfigNode& node) -> const ConfigNode& {
    const ConfigNode& overrides = at(node, {"hardware_overrides"});
    const ConfigNode& family = at(overrides, {std::string(published.hardware->family)});
    return family.kind == ConfigNode::Kind::kMapping ? family : at(overrides, {"nvidia"});
  };
  std::vector<ConfigNode> parts = {variant, at(variant, {"hardware_overrides", exact}),
                                   at(strategy, {role}), over, at(over, {role})};
  const bool replaced = of_family(over).kind == ConfigNode::Kind::kMapping;
  for (const ConfigNode& node : replaced ? std::vector{over} : std::vector{recipe, variant}) {
    parts.push_back(of_family(node));
  }
  parts.push_back(at(over, {"hardware_overrides", exact}));
  parts.push_back(at(over, {role, "hardware_overrides", exact}));
  Texts words;
  Wanted wanted;
  add_words(at(recipe, {"model", "base_args"}), words);
  add_pairs(at(recipe, {"model", "base_env"}), wanted.environment);
  for (const ConfigNode& part : parts) {
    for (const char* const key : {"extra_args", "vllm_args"}) {
      add_words(at(part, {key}), words);
    }
    for (const char* const key : {"env", "extra_env"}) {
      add_pairs(at(part, {key}), wanted.environment);
    }
  }
  wanted.flags = flags_of(words);
  leave_out(wanted, *published.hardware);
  return wanted;
}

std::vector<Published> all_published() {
  const char* const named = std::getenv("PDJOB_VLLM_RECIPES");
  const fs::path source = PDJOB_SOURCE_DIR;
  std::vector<Published> all;
  for (const fs::path& folder :
       {source / "tests/data/vllm_recipes",
        named != nullptr ? fs::path(named) : source.parent_path() / "shared/recipes_vllm"}) {
    std::set<std::string> names;
    std::error_code missing;
    for (const auto& file : fs::directory_iterator(folder / "models", missing)) {
      names.insert(file.path().stem().string());
    }
    for (const std::string& name : names) {
      for (const char* const hardware : {"h200", "gb200"}) {
        all.push_back({.name = name, .folder = folder, .hardware = find_hardware(hardware)});
      }
    }
  }
  return all;
}

class PublishedRecipe : public testing::TestWithParam<Published> {
 public:
  static uint32_t nodes_of(const NativeJob& job) {
    constexpr std::string_view kBefore = ", for ";
    const size_t found = job.yaml.find(kBefore);
    return found == std::string::npos
               ? 0
               : static_cast<uint32_t>(std::stoul(job.yaml.substr(found + kBefore.size())));
  }

 protected:
  static NativeJob converted(std::optional<uint32_t> nodes = std::nullopt) {
    RecipeRequest request = GetParam().request();
    request.nodes = nodes;
    const auto job = native_job_of_recipe(request);
    EXPECT_TRUE(job.has_value()) << (job ? "" : job.error().message);
    return job ? *job : NativeJob{};
  }
  static uint32_t gpus_of(const ConfigNode& job) {
    uint32_t gpus = 0;
    for (const std::string& role : kRoles) {
      gpus += number_at(job, {role, "workers"}, 0) * number_at(job, {role, "engine", "gpus"}, 1);
    }
    return gpus;
  }
};

TEST_P(PublishedRecipe, LosesNoFlagAndNoVariableAndDoublesNone) {
  const ConfigNode& job = tree_of(converted().yaml);
  for (const std::string& role : kRoles) {
    const Wanted wanted = wanted_of(GetParam(), role);
    Texts words;
    for (const ConfigNode& word : at(job, {role, "engine", "args"}).items) {
      words.push_back(word.text);
    }
    Pairs environment;
    for (const ConfigNode& variable : at(job, {role, "engine", "env"}).items) {
      const size_t equals = variable.text.find('=');
      environment[variable.text.substr(0, equals)] = variable.text.substr(equals + 1);
    }
    const Pairs flags = flags_of(words);
    EXPECT_EQ(flags, wanted.flags) << role;
    EXPECT_EQ(environment, wanted.environment) << role;
    EXPECT_EQ(at(job, {role, "engine", "env"}).items.size(), environment.size());
    const auto options = std::ranges::count_if(
        words, [](const std::string& word) { return word.starts_with("--"); });
    EXPECT_EQ(static_cast<size_t>(options), flags.size()) << "an option stands twice";
  }
}

TEST_P(PublishedRecipe, GivesAnEngineTheGpusThatHoldTheModel) {
  const Hardware& hardware = *GetParam().hardware;
  const ConfigNode& recipe = tree_of(GetParam().request().recipe.text);
  const NativeJob least = converted();
  const ConfigNode& job = tree_of(least.yaml);
  const uint32_t nodes = nodes_of(least);
  for (const std::string& role : kRoles) {
    const ConfigNode& engine = at(job, {role, "engine"});
    const uint32_t gpus = number_at(engine, {"gpus"}, 1);
    uint32_t product = 1;
    for (const char* const size : {"tensor", "pipeline", "data"}) {
      product *= number_at(engine, {"parallel", size}, 1);
    }
    EXPECT_EQ(gpus, product);
    EXPECT_GE(gpus * hardware.gpu_gb,
              number_at(recipe, {"variants", "default", "vram_minimum_gb"}, 0));
    EXPECT_LE(gpus, number_at(engine, {"nodes"}, 1) * hardware.gpus);
    const std::string mode =
        at(recipe, {"strategy_overrides", "pd_cluster", role, "parallelism"}).text;
    if (mode == "tep" || mode == "dep") {
      EXPECT_EQ(at(engine, {"parallel", "expert"}).text, "true");
    }
    EXPECT_EQ(number_at(engine, {"parallel", "data"}, 1) > 1, mode == "dep" && gpus > 1);
  }
  EXPECT_LE(gpus_of(job), nodes * hardware.gpus);
  const ConfigNode& more = tree_of(converted(3 * nodes).yaml);
  EXPECT_GE(gpus_of(more), gpus_of(job));
  EXPECT_LE(gpus_of(more), 3 * nodes * hardware.gpus);
  RecipeRequest fewer = GetParam().request();
  fewer.nodes = nodes - 1;
  EXPECT_TRUE(nodes == 1 || !native_job_of_recipe(fewer)) << "fits on fewer nodes";
}

std::vector<Node> nodes_like(const Hardware& hardware, uint32_t count) {
  std::vector<Node> nodes;
  for (uint32_t i = 0; i < count; ++i) {
    nodes.push_back({.name = std::string(hardware.name) + "-" + std::to_string(i),
                     .host = "10.0.0." + std::to_string(i + 1),
                     .cores = 64,
                     .memory_bytes = uint64_t{1} << 40});
    for (uint32_t gpu = 0; gpu < hardware.gpus; ++gpu) {
      nodes.back().gpus.push_back(std::to_string(gpu));
    }
  }
  return nodes;
}

std::string plan_of(const Published& published) {
  const auto job = native_job_of_recipe(published.request());
  if (!job) {
    return job.error().message;
  }
  const auto config = parse_job_config("job.yaml", job->yaml, {.home = "/home/nobody"});
  if (!config) {
    return config.error().message;
  }
  const auto plan =
      make_plan(*config, nodes_like(*published.hardware, PublishedRecipe::nodes_of(*job)), {{}});
  return job->warnings + config->warnings + (plan ? plan->to_text() : plan.error().message);
}

TEST(PublishedRecipes, HaveTheGoldenWarningsPlansAndCommandLines) {
  CaseFile all(PDJOB_TEST_DIR "/recipe_plans.txt", "--- plan");
  size_t planned = 0;
  for (const Published& published : all_published()) {
    const auto found = std::ranges::find(all.cases(), published.label(), &CaseFile::Case::name);
    const std::string text = plan_of(published);
    if (CaseFile::updating() && found == all.cases().end()) {
      all.cases().push_back({.name = published.label(), .expected = text});
      continue;
    }
    ASSERT_NE(found, all.cases().end()) << published.label();
    if (CaseFile::updating()) {
      found->expected = text;
    }
    EXPECT_EQ(text, found->expected) << published.label();
    planned += 1;
  }
  EXPECT_GE(all.cases().size(), 40U);
  if (CaseFile::updating()) {
    all.write();
  }
  EXPECT_GE(planned, CaseFile::updating() ? 0U : 6U);
}

std::string test_name(const testing::TestParamInfo<Published>& info) {
  std::string name = info.param.label() + " " + std::to_string(info.index);
  for (char& c : name) {
    c = std::isalnum(static_cast<unsigned char>(c)) != 0 ? c : '_';
  }
  return name;
}

INSTANTIATE_TEST_SUITE_P(All, PublishedRecipe, testing::ValuesIn(all_published()), test_name);

}  // namespace
}  // namespace pdjob::launcher
