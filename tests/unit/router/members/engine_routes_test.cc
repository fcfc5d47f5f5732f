#include "router/members/engine_routes.h"

#include <algorithm>

#include <gtest/gtest.h>

#include "common/config/http_paths.h"
#include "engine/recipes/engine_recipe.h"

namespace pdjob::router {
namespace {

// Launched engines have the routes of their recipe, others those that the router knows.
TEST(EngineRoutes, AreThoseOfTheRecipes) {
  for (const auto& [name, protocol] :
       {std::pair("vllm", net::Protocol::kNixl), std::pair("sglang", net::Protocol::kSglang)}) {
    const engine::EngineRecipe recipe = engine::shipped_engine_recipe(name);
    for (const net::Role role : {net::Role::kPrefill, net::Role::kDecode, net::Role::kBoth}) {
      std::vector<std::string> of_recipe = engine::routes_of(recipe, net::to_string(role));
      std::vector<std::string> known = engine_routes(protocol, role);
      std::ranges::sort(of_recipe);
      std::ranges::sort(known);
      EXPECT_EQ(known, of_recipe) << name << ' ' << net::to_string(role);
      EXPECT_LE(known.size(), kEnginePathsMax);
    }
  }
}

TEST(EngineRoutes, NameTheMakesThatServeAPath) {
  EXPECT_EQ(makes_that_serve("/v1/rerank"), "vLLM and SGLang");
  EXPECT_EQ(makes_that_serve("/pooling"), "vLLM");
  EXPECT_EQ(makes_that_serve("/encode"), "SGLang");
  EXPECT_EQ(makes_that_serve("/nowhere"), "");
}

TEST(EngineRoutes, APrefillEngineOnlyReadsPrompts) {
  const auto routes = engine_routes(net::Protocol::kNixl, net::Role::kPrefill);
  EXPECT_EQ(std::ranges::count(routes, "/v1/messages"), 0);
  EXPECT_EQ(std::ranges::count(routes, "/v1/rerank"), 1);
}

}  // namespace
}  // namespace pdjob::router
