#include "engine/recipes/parallel.h"

#include <filesystem>
#include <fstream>

#include <gtest/gtest.h>

#include "common/random.h"
#include "engine/recipes/engine_recipe.h"
#include "engine/recipes/foreign_config.h"
#include "engine/recipes/model_folder.h"

namespace pdjob::engine {
namespace {

using Texts = std::vector<std::string>;

EngineShape shape(const std::string& make, const Texts& args, Parallel keys = {},
                  uint32_t gpus = 0) {
  const ForeignConfig config{.make = make, .args = args, .parallel = keys, .gpus = gpus};
  return shape_of(config, true);
}

std::string problems(const std::string& make, const Texts& args, Parallel keys = {},
                     uint32_t gpus = 0, uint32_t nodes = 1) {
  const ForeignConfig config{
      .make = make, .args = args, .parallel = keys, .gpus = gpus, .nodes = nodes};
  const EngineRecipe recipe = recipe_of(config);
  std::string text;
  for (const auto& [key, message] : check_shape(shape_wish(recipe, config, true))) {
    text.append(key).append(" ").append(message).append("\n");
  }
  return text;
}

Texts rendered(const std::string& make, const Texts& args, Parallel keys) {
  const ForeignConfig config{.make = make, .args = args, .parallel = keys};
  const EngineRecipe recipe = recipe_of(config);
  return parallel_args(shape_wish(recipe, config, true));
}

TEST(Parallel, EachSpellingOfAnEnginesOptionsIsRead) {
  const std::vector<Texts> spellings = {{"--tensor-parallel-size", "4"},
                                        {"--tensor-parallel-size=4"},
                                        {"--tensor_parallel_size", "4"},
                                        {"--tensor_parallel_size=4"},
                                        {"-tp", "4"},
                                        {"-tp=4"},
                                        {"--tensor-parallel", "4"},
                                        {"-tp", "2", "-tp", "4"}};
  for (const Texts& args : spellings) {
    EXPECT_EQ(shape("vllm", args).tensor, 4U) << args.front();
    EXPECT_EQ(shape("vllm", args).gpus, 4U) << args.front();
  }
  for (const Texts& args : std::vector<Texts>{
           {"--tp", "8"}, {"--tp-size", "8"}, {"--tensor-parallel-size=8"}, {"--tp_size=8"}}) {
    EXPECT_EQ(shape("sglang", args).gpus, 8U) << args.front();
  }
}

TEST(Parallel, GpusAreTheProductOfTheSizesThatTakeSome) {
  EXPECT_EQ(shape("vllm", {"-tp", "2", "-pp=2", "-dp", "3"}).gpus, 12U);
  EXPECT_EQ(shape("vllm", {"-tp", "4", "-dcp", "2"}).gpus, 4U) << "they share the ranks";
  EXPECT_EQ(shape("vllm", {"-tp", "4", "-pcp", "2"}).gpus, 8U);
  EXPECT_EQ(shape("vllm", {"-tp", "4"}, {.data = 2}).gpus, 8U);
  EXPECT_EQ(shape("sglang", {"--tp", "8", "--dp", "8", "--enable-dp-attention"}).gpus, 8U);
  EXPECT_EQ(shape("sglang", {"--tp", "2", "--dp", "4"}).gpus, 8U);
  EXPECT_EQ(shape("vllm", {}).gpus, 1U);
  EXPECT_EQ(shape("command", {}, {}, 6).gpus, 6U) << "its recipe knows no sizes";
}

TEST(Parallel, AnEngineOnCpusHasRanksAndNoGpu) {
  const EngineShape cpus = shape_of(ForeignConfig{.make = "vllm", .args = {"-tp=2"}}, false);
  EXPECT_EQ(cpus.ranks, 2U);
  EXPECT_EQ(cpus.gpus, 0U);
}

TEST(Parallel, KeysBecomeTheOptionsOfTheMakeUnlessTheUserWroteThem) {
  const Parallel keys{.tensor = 2, .data = 4, .expert = true};
  EXPECT_EQ(rendered("vllm", {}, keys),
            (Texts{"--tensor-parallel-size", "2", "--data-parallel-size", "4",
                   "--enable-expert-parallel"}));
  EXPECT_EQ(rendered("sglang", {}, keys),
            (Texts{"--tp-size", "2", "--dp-size", "4", "--ep-size={tensor}"}));
  EXPECT_EQ(rendered("vllm", {"-tp=2", "-ep"}, keys), (Texts{"--data-parallel-size", "4"}));
  EXPECT_EQ(rendered("vllm", {}, {.tensor = 1}), Texts{});
}

TEST(Parallel, WhatContradictsItselfIsRefused) {
  EXPECT_EQ(problems("vllm", {"-tp", "4"}, {.tensor = 2}),
            "parallel.tensor is 2, and engine.args says -tp 4\n");
  EXPECT_EQ(problems("vllm", {"-tp", "4"}, {}, 8),
            "gpus is 8, and its parallel sizes take 4 (tensor 4)\n");
  EXPECT_EQ(problems("vllm", {}, {}, 8),
            "gpus is 8, and its parallel sizes take 1: say how it uses them, such as "
            "engine.parallel: {tensor: 8}\n");
  EXPECT_EQ(problems("vllm", {"-tp"}), "args -tp must be 1..1024, got nothing\n");
  EXPECT_EQ(problems("vllm", {"-tp", "two"}), "args -tp must be 1..1024, got two\n");
  EXPECT_EQ(problems("vllm", {"--nnodes=2"}),
            "args --nnodes is said by pdjob, to each node of an engine: set engine.nodes and "
            "engine.parallel\n");
  EXPECT_EQ(problems("vllm", {}, {.tensor = 3}, 0, 2),
            "nodes is 2, by which 3 GPUs cannot be divided\n");
  EXPECT_EQ(problems("vllm", {}, {.tensor = 2, .data = 3}, 0, 2),
            "nodes is 2: a node of 3 GPUs holds no whole data-parallel ranks of 2, nor do such "
            "ranks fill whole nodes\n");
  EXPECT_EQ(problems("vllm", {"-tp=1024", "-dp=1024"}),
            "parallel takes more than 4096 GPUs (tensor 1024, data 1024)\n");
  EXPECT_EQ(problems("vllm", {"-tp=8", "-dp=2"}, {.tensor = 8}, 16, 2), "");
}

TEST(Parallel, ACommandOfItsOwnSaysItsOptionsOrNone) {
  ForeignConfig config{.make = "command", .parallel = {.tensor = 2}, .gpus = 2};
  config.recipe.command = {"engine"};
  const auto found = check_shape(shape_wish(config.recipe, config, true));
  ASSERT_EQ(found.size(), 1U);
  EXPECT_EQ(found[0].message, "is not known to the recipe: name the option in its `parallel`");
  config.recipe.parallel.tensor = {"--gpus-for-me"};
  EXPECT_TRUE(check_shape(shape_wish(config.recipe, config, true)).empty());
  EXPECT_EQ(parallel_args(shape_wish(config.recipe, config, true)), (Texts{"--gpus-for-me", "2"}));
}

TEST(Parallel, EachRankHasASideChannelAndEachStartOtherPorts) {
  const ForeignConfig config{
      .make = "vllm", .ports = {3000, 3029}, .parallel = {.data = 4}, .kv_events = false};
  EXPECT_EQ(ports_of_engine(config), 5U);
  EXPECT_EQ(band_offset(config, 0), 0U);
  EXPECT_EQ(band_offset(config, 5), 5U);
  EXPECT_EQ(band_offset(config, 30), 0U) << "all others come first";
  ForeignConfig wide = config;
  wide.nodes = 2;
  EXPECT_EQ(ports_of_engine(wide), 37U) << "two rendezvous";
  ForeignConfig telling = config;
  telling.kv_events = true;
  EXPECT_EQ(ports_of_engine(telling), 13U) << "each rank tells its events, and tells them again";
}

TEST(ModelFolder, TellsTheHeadsThatItsConfigNamesAndTheBytesOfItsWeights) {
  const std::string folder = testing::TempDir() + "/model_folder";
  std::filesystem::create_directories(folder);
  const auto read = [&](const std::string& text) {
    std::ofstream(folder + "/config.json") << text;
    return read_model_folder(folder);
  };
  EXPECT_EQ(read(R"({"num_attention_heads": 64, "num_key_value_heads": 8, "rope": {"a": [1]}})"),
            (ModelFolder{.heads = 64, .kv_heads = 8}));
  EXPECT_EQ(read(R"({"text_config": {"num_attention_heads": 32}, "vision_config": {}})"),
            (ModelFolder{.heads = 32, .kv_heads = 32}));
  EXPECT_EQ(
      read(R"({"num_attention_heads": 128, "num_key_value_heads": 128, "kv_lora_rank": 512})"),
      (ModelFolder{.heads = 128, .kv_heads = 128, .latent = true}));
  const auto file = [&](const std::string& name, size_t bytes) {
    std::ofstream(folder + "/" + name) << std::string(bytes, 'w');
  };
  file("model-00001-of-00002.safetensors", 30);
  file("model-00002-of-00002.safetensors", 12);
  file("consolidated.safetensors", 42);
  file("model.safetensors.index.json", 5);
  EXPECT_EQ(read(R"({"num_attention_heads": 8})"),
            (ModelFolder{.heads = 8, .kv_heads = 8, .weight_bytes = 42}));
  std::filesystem::remove_all(folder);
  std::filesystem::create_directories(folder);
  EXPECT_EQ(read("[]"), ModelFolder{});
  EXPECT_EQ(read("{\"num_attention_heads\": -4"), ModelFolder{});
  EXPECT_EQ(read_model_folder("/nowhere"), ModelFolder{});
}

// Arguments of any kind: what is read is what the engine's own rules say of them.
TEST(Parallel, RandomOptionsTakeTheGpusThatTheirLastValuesSay) {
  struct Size {
    Texts spellings;
    bool multiplies;
  };
  const std::vector<Size> sizes = {
      {{"--tensor-parallel-size", "--tensor_parallel_size", "-tp"}, true},
      {{"--pipeline-parallel-size", "-pp"}, true},
      {{"--data-parallel-size", "-dp"}, true},
      {{"--decode-context-parallel-size", "-dcp"}, false},
      {{"--prefill-context-parallel-size", "-pcp"}, true},
      {{"--max-num-seqs", "--seed"}, false}};
  for (uint64_t seed = 0; seed < 2000; ++seed) {
    Random random(seed);
    Texts args;
    std::vector<uint32_t> last(sizes.size(), 1);
    for (uint64_t i = random.below(6); i > 0; --i) {
      const size_t which = random.below(sizes.size());
      const Texts& spellings = sizes[which].spellings;
      const std::string& option = spellings[random.below(spellings.size())];
      last[which] = 1 + static_cast<uint32_t>(random.below(4));
      if (random.below(2) == 0) {
        args.push_back(option + "=" + std::to_string(last[which]));
      } else {
        args.push_back(option);
        args.push_back(std::to_string(last[which]));
      }
    }
    uint32_t gpus = 1;
    for (size_t i = 0; i < sizes.size(); ++i) {
      gpus *= sizes[i].multiplies ? last[i] : 1;
    }
    EXPECT_EQ(shape("vllm", args).gpus, gpus) << seed;
  }
}

}  // namespace
}  // namespace pdjob::engine
