// RouterRecipe: how to start an external router in front of a job's workers, how to tell it of
// changes, and how to see that it is ready. Each recipe is one YAML file; those in router/recipes
// are part of the program. Words {in_braces} are filled in (docs/how-to/other-routers.md). Value;
// all functions except find_recipe() are Pure.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/config/config_reader.h"
#include "common/result.h"
#include "common/time.h"
#include "net/control/message.h"

namespace pdjob::router {

// How a running router learns its workers.
enum class MembershipBy {
  kRestart,  // It cannot: a new instance replaces it, and it drains.
  kHttp,     // A call for each change, and one to read its workers back.
};

// A part of the command line, or of a text, with something of each worker.
struct RecipeList {
  net::Role of = net::Role::kBoth;  // kBoth: every worker.
  std::vector<std::string> each;    // Arguments.
  std::optional<std::string> join;  // Joins all of them into one text, with this between.
};

struct RecipeCall {
  std::string method;
  std::string path;
  std::string body;
};

struct RouterRecipe {
  std::string name;
  std::string install;                     // What to do if its program is not found.
  std::vector<std::string> command;        // For a disaggregated job; empty: not supported.
  std::vector<std::string> plain_command;  // For any other job.
  std::vector<std::string> environment;    // NAME=value
  // The environment variable with the key that the router sends to all workers of a disaggregated
  // job. Empty: the router sends none, and its workers' ports are open.
  std::string key_environment;
  std::map<std::string, RecipeList> lists;

  std::string ready_path;  // A GET that returns 200 when it is ready.
  // A GET that returns an array with one object for each worker; empty: nothing is read back.
  std::string members_path;
  std::string members_array = "workers";
  std::string member_key = "url";
  std::string member_name = "http://{address}";  // The value of member_key.

  MembershipBy membership = MembershipBy::kRestart;
  RecipeCall add;     // kHttp.
  RecipeCall remove;  // {id}: the member "id" of the worker's object as read back.
  Duration start_timeout = std::chrono::seconds(60);
  Duration drain_timeout = std::chrono::seconds(30);  // After SIGTERM; then it is killed.
};

// The values of one started instance.
struct RecipeValues {
  std::string host;
  uint16_t port = 0;
  uint16_t spare_port = 0;  // For metrics and the like.
  std::string model;
};

// kInvalidArgument: the error lists everything wrong with the text, as config_reader.h does.
Result<RouterRecipe> parse_recipe(const std::string& source, const std::string& text);
// Finds a built-in recipe by its name, or any recipe by the path of its file.
Result<RouterRecipe> find_recipe(const std::string& name_or_path);
std::vector<std::string> shipped_recipe_names();

// kUnsupported: the recipe has no command for such a job. `plain`: the job is not disaggregated.
Status serves(const RouterRecipe& recipe, bool plain);

// Lists workers in the order of `workers`.
std::vector<std::string> recipe_command(const RouterRecipe& recipe, const RecipeValues& values,
                                        std::span<const net::WorkerEntry> workers, bool plain);
std::string recipe_member_name(const RouterRecipe& recipe, const net::WorkerEntry& worker);
// `id`: the router's id of the worker, as read back.
RecipeCall recipe_call(const RouterRecipe& recipe, const RecipeCall& call,
                       const net::WorkerEntry& worker, const std::string& id);

// Returns the names in the answer read back, each with its "id" if it has one. kCorrupt: the answer
// cannot be parsed.
Result<std::map<std::string, std::string>> members_in(const RouterRecipe& recipe,
                                                      const std::string& answer);

}  // namespace pdjob::router
