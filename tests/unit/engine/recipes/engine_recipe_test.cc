#include "engine/recipes/engine_recipe.h"

#include <gtest/gtest.h>

namespace pdjob::engine {
namespace {

std::string errors_of(const std::string& text) {
  const auto recipe = parse_engine_recipe("r.yaml", text);
  return recipe ? "" : recipe.error().message;
}

TEST(EngineRecipe, EveryShippedRecipeIsGood) {
  EXPECT_EQ(shipped_engine_recipes(), (std::vector<std::string>{"sglang", "vllm"}));
  for (const std::string& name : shipped_engine_recipes()) {
    const EngineRecipe recipe = shipped_engine_recipe(name);
    EXPECT_EQ(recipe.name, name);
    EXPECT_FALSE(recipe.metrics.kv_received.empty()) << "nothing proves that KV moves: " << name;
    EXPECT_FALSE(recipe.metrics.progress.empty()) << "a hang cannot be seen: " << name;
  }
}

TEST(EngineRecipe, TheLeastRecipeIsACommandAndAPath) {
  const auto recipe =
      parse_engine_recipe("r.yaml", "command: [my-engine, --port, \"{port}\"]\nready: /ready\n");
  ASSERT_TRUE(recipe.has_value()) << recipe.error().message;
  EXPECT_EQ(recipe->protocol, "nixl");
  EXPECT_EQ(recipe->metrics.path, "");
}

TEST(EngineRecipe, RefusesWhatItDoesNotUnderstandAllAtOnce) {
  EXPECT_EQ(
      errors_of(R"(command: [e, "{pots}"]
ports: [Port]
prefill: {environment: [NOVALUE]}
warm_up: warm
protocol: nixel
kv_address: "{prot}"
metrics: {running: "no name", progress: ["x{y}"]}
)"),
      R"(r.yaml:1:1: ready: is missing: a path that is answered with 200 once the engine serves
    command: [e, "{pots}"]
    ^
r.yaml:1:10: command: {pots} means nothing here; known are {Port}, {data}, {device}, {engine_id}, {gpu_memory}, {gpus}, {head_host}, {host}, {interface}, {lease_seconds}, {model}, {name}, {node_rank}, {nodes}, {pipeline}, {port}, {role}, {served_name}, {store_bytes}, {store_file}, {store_gb}, {store_host}, {store_port}, {store_transport}, {tensor}, {threads}
    command: [e, "{pots}"]
             ^
r.yaml:2:8: ports: must be words of a-z and _ other than port, kv_events_port and kv_replay_port, got Port
    ports: [Port]
           ^
r.yaml:3:24: prefill.environment: must be a list of NAME=value, got NOVALUE
    prefill: {environment: [NOVALUE]}
                           ^
r.yaml:4:10: warm_up: must begin with /
    warm_up: warm
             ^
r.yaml:5:11: protocol: expected one of nixl, nixl_push, sglang, got "nixel", did you mean nixl?
    protocol: nixel
              ^
r.yaml:6:13: kv_address: {prot} means nothing here; known are {Port}, {data}, {device}, {engine_id}, {gpu_memory}, {gpus}, {head_host}, {host}, {interface}, {lease_seconds}, {model}, {name}, {node_rank}, {nodes}, {pipeline}, {port}, {role}, {served_name}, {store_bytes}, {store_file}, {store_gb}, {store_host}, {store_port}, {store_transport}, {tensor}, {threads}
    kv_address: "{prot}"
                ^
r.yaml:7:1: metrics.path: is missing: where the metrics are
    metrics: {running: "no name", progress: ["x{y}"]}
    ^
r.yaml:7:20: metrics.running: must be NAME or NAME{label="value"}, got no name
    metrics: {running: "no name", progress: ["x{y}"]}
                       ^
r.yaml:7:41: metrics.progress: must be NAME or NAME{label="value"}, got x{y}
    metrics: {running: "no name", progress: ["x{y}"]}
                                            ^
)");
}

TEST(EngineRecipe, AnEmptyFileIsRefused) {
  EXPECT_NE(errors_of("").find("the file is empty"), std::string::npos);
}

TEST(EngineRecipe, RoutesArePathsOfEachRole) {
  const auto recipe = parse_engine_recipe("r.yaml", R"(command: [e]
ready: /ready
routes: {any: [/v1/rerank], decode: [/v1/messages]}
)");
  ASSERT_TRUE(recipe.has_value()) << recipe.error().message;
  EXPECT_EQ(routes_of(*recipe, "prefill"), std::vector<std::string>{"/v1/rerank"});
  EXPECT_EQ(routes_of(*recipe, "decode"), (std::vector<std::string>{"/v1/rerank", "/v1/messages"}));
  EXPECT_EQ(
      errors_of(R"(command: [e]
ready: /ready
routes: {any: [rerank], listed_in: openapi}
models: models
adapter_name: "{base}:{adapter}"
)"),
      R"(r.yaml:3:15: routes.any: must be paths such as /v1/rerank, of at most 64 letters, digits and _-./, and not below /pdjob, got rerank
    routes: {any: [rerank], listed_in: openapi}
                  ^
r.yaml:3:36: routes.listed_in: must begin with /
    routes: {any: [rerank], listed_in: openapi}
                                       ^
r.yaml:4:9: models: must begin with /
    models: models
            ^
r.yaml:5:15: adapter_name: {base} means nothing here; known are {adapter}, {model}
    adapter_name: "{base}:{adapter}"
                  ^
)");
}

TEST(EngineRecipe, SaysHowAnEngineTakesOtherWeights) {
  const auto recipe = parse_engine_recipe("r.yaml", R"(command: [e]
ready: /ready
weights: {flush: /flush, load: '/load {"path":"{weights_path}"}'}
)");
  ASSERT_TRUE(recipe.has_value()) << recipe.error().message;
  EXPECT_TRUE(recipe->weights.can_change());
  EXPECT_FALSE(parse_engine_recipe("r.yaml", "command: [e]\nready: /r\n")->weights.can_change());
  EXPECT_EQ(
      errors_of(R"(command: [e]
ready: /ready
weights: {load: "load {path}"}
)"),
      R"(r.yaml:3:1: weights.flush: is missing: prompts of the old weights would be used with the new ones
    weights: {load: "load {path}"}
    ^
r.yaml:3:17: weights.load: must be the path of a POST, and behind a space its JSON body
    weights: {load: "load {path}"}
                    ^
r.yaml:3:17: weights.load: {path} means nothing here; known are {weights_path}, {weights_version}
    weights: {load: "load {path}"}
                    ^
)");
}

}  // namespace
}  // namespace pdjob::engine
