#include "router/recipes/router_recipe.h"

#include <filesystem>
#include <fstream>

#include <gtest/gtest.h>

namespace pdjob::router {
namespace {

const std::vector<net::WorkerEntry> kWorkers = {
    {.name = "prefill-0", .role = net::Role::kPrefill, .host = "10.0.0.1", .port = 81},
    {.name = "prefill-1", .role = net::Role::kPrefill, .host = "::1", .port = 82},
    {.name = "decode-0", .role = net::Role::kDecode, .host = "10.0.0.3", .port = 83}};
const RecipeValues kValues = {.host = "127.0.0.1", .port = 9000, .spare_port = 9001, .model = "m"};

RouterRecipe parsed(const std::string& text) {
  const auto recipe = parse_recipe("r.yaml", text);
  EXPECT_TRUE(recipe.has_value()) << recipe.error().message;
  return recipe ? *recipe : RouterRecipe{};
}

std::string errors_of(const std::string& text) {
  const auto recipe = parse_recipe("r.yaml", text);
  EXPECT_FALSE(recipe.has_value());
  return recipe ? "" : recipe.error().message;
}

TEST(RouterRecipe, AListStandsForArgumentsOfEachWorkerOfItsRole) {
  const RouterRecipe recipe = parsed(R"(
command: [router, "{prefill}", "--port={port}", "{decode}"]
lists:
  prefill: {of: prefill, each: [--prefill, "http://{address}", "{name}"]}
  decode: {of: decode, each: ["{worker_host}:{worker_port}/{role}"]}
ready: /health
)");
  EXPECT_EQ(recipe_command(recipe, kValues, kWorkers, false),
            (std::vector<std::string>{"router", "--prefill", "http://10.0.0.1:81", "prefill-0",
                                      "--prefill", "http://[::1]:82", "prefill-1", "--port=9000",
                                      "10.0.0.3:83/decode"}));
}

TEST(RouterRecipe, AJoinedListIsOneTextAndMayStandInsideOthers) {
  const RouterRecipe recipe = parsed(R"(
command: [router, --backends, "{all}", "--roles=[{roles}]"]
plain_command: [router, "{all}"]
lists:
  all: {of: all, each: ["http://{address}"], join: ","}
  roles: {of: all, each: ["{role}"], join: " "}
ready: /health
)");
  EXPECT_EQ(recipe_command(recipe, kValues, kWorkers, false),
            (std::vector<std::string>{"router", "--backends",
                                      "http://10.0.0.1:81,http://[::1]:82,http://10.0.0.3:83",
                                      "--roles=[prefill prefill decode]"}));
  EXPECT_EQ(recipe_command(recipe, kValues, {}, true), (std::vector<std::string>{"router", ""}));
}

TEST(RouterRecipe, CallsNameOneWorkerAndLeaveTheBracesOfJsonAlone) {
  const RouterRecipe recipe = parsed(R"(
command: [router]
ready: /health
members: {path: /workers}
membership: http
add: {method: POST, path: /workers, body: '{"url": "http://{address}", "of": {"type": "{role}"}}'}
remove: {method: DELETE, path: "/workers/{id}?{encoded_name}"}
)");
  EXPECT_EQ(recipe_call(recipe, recipe.add, kWorkers[0], "").body,
            R"({"url": "http://10.0.0.1:81", "of": {"type": "prefill"}})");
  EXPECT_EQ(recipe_call(recipe, recipe.remove, kWorkers[0], "77").path,
            "/workers/77?http%3A%2F%2F10.0.0.1%3A81");
}

TEST(RouterRecipe, TheBootstrapPortIsTheOneOfTheEngineOrElseTheWorkersOwn) {
  const RouterRecipe recipe = parsed(R"(
command: [router, "{prefill}"]
lists: {prefill: {of: prefill, each: ["{bootstrap_port}"]}}
ready: /health
)");
  std::vector<net::WorkerEntry> workers = kWorkers;
  workers[0].kv_address = R"({"bootstrap_host":"10.0.0.1","bootstrap_port":8998})";
  workers[1].kv_address = R"({"remote_host":"::1","remote_port":7})";
  EXPECT_EQ(recipe_command(recipe, kValues, workers, false),
            (std::vector<std::string>{"router", "8998", "82"}));
}

TEST(RouterRecipe, AJoinedListIsPartOfAText) {
  const RouterRecipe recipe = parsed(R"(
command: [router, "model {model} at {all}"]
lists: {all: {of: all, each: ["{address}"], join: ","}}
ready: /health
)");
  EXPECT_EQ(recipe_command(recipe, kValues, kWorkers, false).back(),
            "model m at 10.0.0.1:81,[::1]:82,10.0.0.3:83");
}

TEST(RouterRecipe, MembersAreReadBackWithTheirIds) {
  const RouterRecipe recipe = parsed("{command: [r], ready: /r, members: {path: /workers}}");
  const auto members = members_in(
      recipe,
      R"({"total": 2, "workers": [{"id": "a", "url": "http://h:1"}, {"url": "http://h:2"}]})");
  ASSERT_TRUE(members.has_value());
  EXPECT_EQ(*members,
            (std::map<std::string, std::string>{{"http://h:1", "a"}, {"http://h:2", ""}}));
  EXPECT_TRUE(members_in(recipe, "{}")->empty());
  EXPECT_FALSE(members_in(recipe, "<html>").has_value());
}

TEST(RouterRecipe, RefusesWhatItDoesNotUnderstandAllAtOnce) {
  const std::string errors = errors_of(R"(
command: [router, "{pots}", "{list}"]
lists: {list: {of: prefill, each: ["{adress}"]}}
membership: http
add: {method: POST}
)");
  for (const char* expected :
       {"{pots} means nothing here", "lists.list.each: {adress} means nothing here",
        "add: needs a method", "remove: needs a method", "members: is missing",
        "ready: must be a path"}) {
    EXPECT_NE(errors.find(expected), std::string::npos) << expected << " in\n" << errors;
  }
  EXPECT_NE(errors_of("ready: /health").find("command: is missing"), std::string::npos);
}

TEST(RouterRecipe, EveryShippedRecipeIsGood) {
  const std::vector<std::string> names = shipped_recipe_names();
  EXPECT_GE(names.size(), 3U);
  for (const std::string& name : names) {
    const auto recipe = find_recipe(name);
    ASSERT_TRUE(recipe.has_value()) << recipe.error().message;
    EXPECT_FALSE(recipe_command(*recipe, kValues, kWorkers, false).empty()) << name;
    EXPECT_FALSE(recipe->install.empty()) << name;
  }
}

TEST(RouterRecipe, IsFoundByThePathOfItsFile) {
  const std::string path = testing::TempDir() + "/own-router.yaml";
  std::ofstream(path) << "{command: [own], ready: /health}\n";
  const auto recipe = find_recipe(path);
  ASSERT_TRUE(recipe.has_value()) << recipe.error().message;
  EXPECT_EQ(recipe->command, std::vector<std::string>{"own"});
  const auto missing = find_recipe("vlm-router");
  ASSERT_FALSE(missing.has_value());
  EXPECT_NE(missing.error().message.find("known are"), std::string::npos);
  EXPECT_FALSE(find_recipe("/no/such.yaml").has_value());
}

}  // namespace
}  // namespace pdjob::router
