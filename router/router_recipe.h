// RouterRecipe: how a router of another make is started before a job's workers, how it is told of
// changes, and how to see that it is ready. Each is one YAML file; those of router/recipes are part
// of the program. What is written {in_braces} is filled in (docs/external_routers.md). Value; Pure,
// but for find_recipe().
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/config_reader.h"
#include "common/result.h"
#include "common/time.h"
#include "net/message.h"

namespace pdjob::router {

// How a running router learns who is there.
enum class MembershipBy {
  kRestart,  // It cannot: another one is started in its place, and the old one drains.
  kHttp,     // A call for each worker that comes or goes, and one to read back who it has.
  kFile,     // It reads a file again.
  kPings,    // It hears of each worker every two seconds, and forgets who is silent.
};

// A part of the command line, or of a text, that has something of each worker.
struct RecipeList {
  net::Role of = net::Role::kBoth;  // kBoth: every worker.
  std::vector<std::string> each;    // Arguments.
  std::optional<std::string> join;  // All of them in one text, with this between.
};

struct RecipeCall {
  std::string method;
  std::string path;
  std::string body;
};

struct RouterRecipe {
  std::string name;
  std::string install;                     // What to do where its program is not found.
  std::vector<std::string> command;        // Of a disaggregated job; empty: it serves none.
  std::vector<std::string> plain_command;  // Of any other.
  std::vector<std::string> environment;    // NAME=value
  // The variable from which the router takes the key that it shows to all workers of a
  // disaggregated job; empty: it shows none, and the ports of its workers are open.
  std::string key_environment;
  std::map<std::string, RecipeList> lists;

  std::string ready_path;  // Of a GET that is answered with 200.
  // Of a GET whose answer has an array of one object for each worker; empty: nothing is read back.
  std::string members_path;
  std::string members_array = "workers";
  std::string member_key = "url";
  std::string member_name = "http://{address}";  // The value of member_key.

  MembershipBy membership = MembershipBy::kRestart;
  RecipeCall add;     // kHttp.
  RecipeCall remove;  // {id} is the member "id" of the worker's object in the answer read back.
  std::string file;   // kFile: what is written to {file}.
  Duration settle{};  // kFile, kPings: until it has taken in a change.
  Duration start_timeout = std::chrono::seconds(60);
  Duration drain_timeout = std::chrono::seconds(30);  // After SIGTERM; then it is killed.
};

// What is known of one started instance.
struct RecipeValues {
  std::string host;
  uint16_t port = 0;
  uint16_t spare_port = 0;  // For its metrics and the like.
  uint16_t ping_port = 0;
  std::string model;
  std::string file;
};

// kInvalidArgument: all that is wrong with the text, as config_reader.h has it.
Result<RouterRecipe> parse_recipe(const std::string& source, const std::string& text);
// One of the program's own by its name, or any by the path of its file.
Result<RouterRecipe> find_recipe(const std::string& name_or_path);
std::vector<std::string> shipped_recipe_names();

// kUnsupported: it has no command for such a job. `plain`: the job is not disaggregated.
Status serves(const RouterRecipe& recipe, bool plain);

// Workers in the order of `workers`.
std::vector<std::string> recipe_command(const RouterRecipe& recipe, const RecipeValues& values,
                                        std::span<const net::WorkerEntry> workers, bool plain);
std::string recipe_file(const RouterRecipe& recipe, const RecipeValues& values,
                        std::span<const net::WorkerEntry> workers);
std::string recipe_member_name(const RouterRecipe& recipe, const net::WorkerEntry& worker);
// `id`: as the router named the worker when it was read back.
RecipeCall recipe_call(const RouterRecipe& recipe, const RecipeCall& call,
                       const net::WorkerEntry& worker, const std::string& id);

// Whom the answer read back names, each with its "id" if it has one. kCorrupt: not understood.
Result<std::map<std::string, std::string>> members_in(const RouterRecipe& recipe,
                                                      const std::string& answer);

}  // namespace pdjob::router
