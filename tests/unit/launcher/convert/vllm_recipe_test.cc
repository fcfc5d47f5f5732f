#include "launcher/convert/vllm_recipe.h"

#include <gtest/gtest.h>

namespace pdjob::launcher {
namespace {

constexpr const char* kStrategy = R"(deploy_type: pd_cluster
prefill:
  vllm_args: [--port, "8001", --kv-transfer-config, '{"kv_connector":"NixlConnector","kv_role":"kv_producer"}']
  env: {NCCL_MNNVL_ENABLE: "1", VLLM_NIXL_SIDE_CHANNEL_HOST: "$PREFILL_NODE_1"}
decode:
  vllm_args: [--port, "8002", --kv-transfer-config, '{"kv_connector":"NixlConnector","kv_role":"kv_consumer"}',
              --compilation-config, '{"mode":1}']
  env: {VLLM_NIXL_SIDE_CHANNEL_PORT: "5558"}
router: {policy: round_robin}
)";

constexpr const char* kModel = R"(model:
  model_id: org/model
  base_args: [--trust-remote-code]
  base_env: {BASE: "1"}
compatible_strategies: [single_node_tp, multi_node_dep, pd_cluster]
)";

constexpr const char* kVariants = "variants: {default: {vram_minimum_gb: 1000}}\n";

RecipeRequest request(const std::string& recipe, const std::string& hardware = "h200") {
  return {.recipe = {.name = "models/My-Model.yaml", .text = kModel + recipe},
          .strategy = {.name = "pd_cluster.yaml", .text = kStrategy},
          .hardware = hardware};
}

NativeJob converted(const RecipeRequest& asked) {
  auto job = native_job_of_recipe(asked);
  EXPECT_TRUE(job.has_value()) << (job ? "" : job.error().message);
  return job ? *job : NativeJob{};
}

std::string refused(const RecipeRequest& asked) {
  const auto job = native_job_of_recipe(asked);
  return job ? "" : job.error().message;
}

std::string role_of(const std::string& yaml, const std::string& role) {
  const size_t begin = yaml.find("\n" + role + ":\n");
  return yaml.substr(begin + 1, yaml.find("\n\n", begin + 1) - begin);
}

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

TEST(VllmRecipe, BecomesANativeFileWithoutWhatPdjobDerives) {
  const NativeJob job = converted(request(kVariants, "gb200"));
  EXPECT_EQ(job.yaml, R"(# vLLM's recipe My-Model.yaml, variant default, for 4 nodes of gb200.
name: my-model
mode: serve
model: org/model
served_name: org/model

engine:
  kind: vllm

prefill:
  workers: 1
  engine:
    gpu: true
    gpus: 8
    nodes: 2
    parallel:
      tensor: 8
    env:
      - BASE=1
      - NCCL_MNNVL_ENABLE=1
    args:
      - --trust-remote-code

decode:
  workers: 1
  engine:
    gpu: true
    gpus: 8
    nodes: 2
    parallel:
      tensor: 8
    env:
      - BASE=1
    args:
      - --trust-remote-code
      - --compilation-config
      - '{"mode":1}'

router:
  listen: 127.0.0.1:8000
  prefill_policy: round_robin
  decode_policy: round_robin

launcher:
  start_timeout: 1h
)");
}

TEST(VllmRecipe, VariablesOfNvlinkDomainsAreLeftOutElsewhereWithAWarning) {
  const NativeJob job = converted(request(kVariants));
  EXPECT_FALSE(contains(job.yaml, "NCCL_MNNVL_ENABLE"));
  EXPECT_TRUE(contains(job.warnings,
                       "pd_cluster.yaml:4:8: warning: prefill.env: without NCCL_MNNVL_ENABLE"))
      << job.warnings;
}

TEST(VllmRecipe, LaterPlacesWinAndNoFlagStandsTwice) {
  const NativeJob job = converted(request(R"(variants:
  default: {vram_minimum_gb: 1000, extra_args: [--max_num_seqs, "2", --kernel-config.a_b=1], extra_env: {BASE: "2"}}
hardware_overrides:
  hopper: {extra_args: [--max-num-seqs, "4", --compilation-config, '{"mode":2}'], extra_env: {OF: hopper}}
  nvidia: {extra_args: [--lost]}
  blackwell: {extra_args: [--lost]}
strategy_overrides:
  pd_cluster:
    env: {OF: strategy, COMMON: "1"}
    prefill: {vllm_args: [--max-num-seqs, "3", --no-enable-prefix-caching], env: {OF: role}}
    decode: {hardware_overrides: {h200: {extra_args: [--max-num-seqs, "5"]}}}
)"));
  EXPECT_EQ(role_of(job.yaml, "prefill"), R"(prefill:
  workers: 1
  engine:
    gpu: true
    gpus: 8
    parallel:
      tensor: 8
    env:
      - BASE=2
      - COMMON=1
      - OF=hopper
    args:
      - --trust-remote-code
      - --max-num-seqs
      - 4
      - --kernel-config.a_b=1
      - --no-enable-prefix-caching
      - --compilation-config
      - '{"mode":2}'
)");
  EXPECT_TRUE(contains(role_of(job.yaml, "decode"), "- --max-num-seqs\n      - 5\n"));
  EXPECT_TRUE(contains(role_of(job.yaml, "decode"), R"('{"mode":2}')"));
}

TEST(VllmRecipe, WhatTheStrategySaysOfAFamilyReplacesWhatTheRecipeSays) {
  const NativeJob job = converted(request(std::string(kVariants) + R"(hardware_overrides:
  hopper: {extra_args: [--replaced], extra_env: {GONE: "1"}}
strategy_overrides:
  pd_cluster: {hardware_overrides: {hopper: {extra_args: [--instead]}}}
)"));
  EXPECT_FALSE(contains(job.yaml, "--replaced"));
  EXPECT_TRUE(contains(job.yaml, "--instead"));
  EXPECT_TRUE(contains(job.warnings, "so it is without --replaced GONE")) << job.warnings;
}

TEST(VllmRecipe, ADataParallelRoleSpreadsExpertsOverItsNodes) {
  const NativeJob job = converted(request(std::string(kVariants) + R"(strategy_overrides:
  pd_cluster:
    prefill: {parallelism: dep, tp: 2}
    decode: {parallelism: dep, nodes: 2}
)"));
  EXPECT_TRUE(contains(role_of(job.yaml, "prefill"),
                       "    gpus: 8\n    parallel:\n      tensor: 2\n      data: 4\n"
                       "      expert: true\n"))
      << job.yaml;
  EXPECT_TRUE(contains(role_of(job.yaml, "decode"),
                       "    gpus: 16\n    nodes: 2\n    parallel:\n      data: 16\n"
                       "      expert: true\n"));
  EXPECT_TRUE(contains(job.warnings, "an engine of decode spans 2 nodes")) << job.warnings;
}

TEST(VllmRecipe, OptionsOfParallelSizesAreTakenInAllSpellings) {
  const NativeJob job = converted(request(R"(variants:
  default: {vram_minimum_gb: 100, extra_args: ["--tensor-parallel-size=8", -ep]}
hardware_overrides: {hopper: {extra_args: [-tp, "2", --data_parallel_hybrid_lb]}}
)"));
  EXPECT_TRUE(contains(role_of(job.yaml, "prefill"),
                       "    gpus: 2\n    parallel:\n      tensor: 2\n      expert: true\n"))
      << job.yaml;
  EXPECT_FALSE(contains(job.yaml, "hybrid"));
  EXPECT_TRUE(contains(job.warnings, "--data-parallel-hybrid-lb is not used"));
  EXPECT_TRUE(contains(job.warnings, "--tensor-parallel-size 8 of the recipe is not used"));
}

TEST(VllmRecipe, AnOptionWithItsValueInOneTextIsReadAsBoth) {
  const NativeJob job = converted(
      request("variants: {default: {vram_minimum_gb: 10, extra_args: [--max-model-len auto]}}\n"));
  EXPECT_TRUE(contains(job.yaml, "- --max-model-len\n      - auto\n"));
  EXPECT_TRUE(contains(job.warnings, "is one text, and is read as 2: --max-model-len auto"));
}

TEST(VllmRecipe, AFeatureAddsItsOptionsOfThisHardwareAndMode) {
  RecipeRequest asked = request(R"(variants:
  default: {vram_minimum_gb: 10}
  small: {vram_minimum_gb: 10, model_id: org/small, default_modes: {draft: second}}
features:
  tools: {args: [--tool-call-parser, x], hardware_overrides: {hopper: {args: [--tool-call-parser, h]}}}
  draft:
    default_mode: first
    modes:
      first: {args: [--speculative-config, "1"], variants: [default]}
      second: {args: [--speculative-config, "2"]}
  solo: {args: [--solo], strategies: [single_node_tp]}
)");
  asked.features = {"tools", "draft"};
  EXPECT_TRUE(contains(converted(asked).yaml, "- h\n      - --speculative-config\n      - 1\n"));
  asked.features = {"draft=second"};
  EXPECT_TRUE(contains(converted(asked).yaml, "- --speculative-config\n      - 2\n"));
  asked.features = {"draft"};
  asked.variant = "small";
  EXPECT_TRUE(contains(converted(asked).yaml, "- --speculative-config\n      - 2\n"));
  EXPECT_TRUE(contains(converted(asked).yaml, "model: org/small\n"));
  asked.features = {"draft=first"};
  EXPECT_TRUE(contains(refused(asked), "has no mode first for this variant on this hardware"));
  asked.features = {"solo"};
  EXPECT_TRUE(contains(refused(asked), "do not include pd_cluster"));
  asked.features = {"tool"};
  EXPECT_TRUE(contains(refused(asked), "has no tool: --feature is one of tools, draft, solo"));
}

TEST(VllmRecipe, WrongChoicesAreRefusedWithTheOnesThatThereAre) {
  RecipeRequest asked = request(kVariants, "h201");
  EXPECT_EQ(refused(asked),
            "--hardware: must be one of h20, h100, h200, b200, b300, gb200, gb300, mi300x, mi325x, "
            "mi355x, got h201\n");
  asked = request(kVariants);
  asked.variant = "fp3";
  EXPECT_TRUE(contains(refused(asked), "has no fp3: --variant is one of default"));
  asked = request(kVariants);
  asked.nodes = 1;
  EXPECT_TRUE(contains(refused(asked), "--nodes is 1, and the job needs at least 2"));
}

TEST(VllmRecipe, WrongTypesAreErrorsAtTheirPlaces) {
  const std::string errors = refused(request(R"(variants:
  default: {vram_minimum_gb: many, extra_args: --flag}
strategy_overrides: {pd_cluster: {prefill: {parallelism: pp}}}
)"));
  EXPECT_TRUE(contains(errors,
                       "models/My-Model.yaml:7:30: variants.default.vram_minimum_gb: "
                       "expected a whole number from 1 on, got \"many\""))
      << errors;
  EXPECT_TRUE(contains(errors, "variants.default.extra_args: expected a list, got \"--flag\""));
  EXPECT_TRUE(contains(errors, "prefill.parallelism: must be tp, tep or dep, got pp"));
}

TEST(VllmRecipe, KeysThatPdjobDoesNotKnowAreWarnings) {
  const NativeJob job = converted(request(std::string(kVariants) + R"(hardware_overrides:
  hoper: {extra_args: [--x]}
surprise: 1
strategy_overrides: {pd_cluster: {prefill: {sidecar: yes}, router: {retries: 3}}}
)"));
  for (const char* const key :
       {"hardware_overrides.hoper: is not used: pdjob knows no such hardware",
        "surprise: is not used: pdjob does not know this key",
        "strategy_overrides.pd_cluster.prefill.sidecar: is not used",
        "strategy_overrides.pd_cluster.router.retries: is not used"}) {
    EXPECT_TRUE(contains(job.warnings, key)) << key << "\n" << job.warnings;
  }
}

TEST(VllmRecipe, HardwareThatTheRecipeExcludesIsAWarning) {
  const NativeJob job = converted(request(R"(variants:
  default: {vram_minimum_gb: 10, precision: nvfp4, supported_hardware: [b200]}
strategy_hardware: {pd_cluster: {hopper: unsupported}}
meta: {hardware: {h200: unsupported}}
)"));
  EXPECT_TRUE(contains(job.warnings, "says that prefill and decode apart do not run on h200"));
  EXPECT_TRUE(contains(job.warnings, "says that the model does not run on h200"));
  EXPECT_TRUE(contains(job.warnings, "does not list h200"));
  EXPECT_TRUE(contains(job.warnings, "nvfp4 is not for hardware such as h200"));
}

TEST(VllmRecipe, NodesThatNoEngineFitsAreAWarning) {
  RecipeRequest asked = request("variants: {default: {vram_minimum_gb: 2000}}\n");
  asked.nodes = 5;
  EXPECT_TRUE(contains(converted(asked).warnings,
                       "warning: --nodes: 1 node of 5 not used: no further engine fits\n"));
}

TEST(VllmRecipe, AConnectorThatPdjobDoesNotDeriveIsPassedOn) {
  RecipeRequest asked = request(kVariants);
  asked.strategy.text = R"(deploy_type: pd_cluster
prefill: {vllm_args: [--kv-transfer-config, '{"kv_connector":"MooncakeConnector"}']}
)";
  const NativeJob job = converted(asked);
  EXPECT_TRUE(contains(job.yaml, R"(--kv-transfer-config={"kv_connector":"MooncakeConnector"})"));
  EXPECT_TRUE(contains(job.warnings, "MooncakeConnector is passed on as it stands"));
}

TEST(VllmRecipe, AFileThatIsNoneIsAnError) {
  RecipeRequest asked = request(kVariants);
  asked.recipe.text = "a: [";
  EXPECT_FALSE(refused(asked).empty());
  asked.recipe.text = "";
  EXPECT_FALSE(refused(asked).empty());
  asked = request(kVariants);
  asked.strategy.text = "deploy_type: single_node\n";
  EXPECT_TRUE(contains(refused(asked), "deploy_type: must be pd_cluster"));
}

}  // namespace
}  // namespace pdjob::launcher
