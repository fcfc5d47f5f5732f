#include "router/recipes/router_recipe.h"

#include <array>
#include <sstream>
#include <utility>

#include "common/address_text.h"
#include "common/config/config_file.h"
#include "common/config/shipped_files.h"
#include "common/config/words.h"
#include "openai/json/json_edit.h"

namespace pdjob::router {
namespace {

constexpr auto kShipped = std::to_array<ShippedFile>({
#include "router/recipes/shipped_recipes.inc"
});

WordNames known_of_instance() { return {"host", "port", "spare_port", "model"}; }
WordNames known_of_worker() {
  return {"address", "worker_host", "worker_port", "bootstrap_port", "name", "role", "model"};
}

// For a path in HTTP.
std::string percent_encoded(std::string_view text) {
  constexpr std::string_view kDigits = "0123456789ABCDEF";
  std::string encoded;
  for (const char c : text) {
    const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                       c == '-' || c == '_' || c == '.';
    if (plain) {
      encoded += c;
    } else {
      const auto byte = static_cast<unsigned char>(c);
      encoded += {'%', kDigits[byte >> 4], kDigits[byte & 15]};
    }
  }
  return encoded;
}

// The role words of vllm-router and sglang-router.
const char* role_word(net::Role role) {
  return role == net::Role::kBoth ? "regular" : net::to_string(role);
}

// SGLang's engines tell where their KV is at a port of its own. A pdjob worker does so at its HTTP
// port.
std::string bootstrap_port(const net::WorkerEntry& worker) {
  constexpr std::array<std::string_view, 1> kNames{"bootstrap_port"};
  if (const auto address = openai::JsonObject::scan(worker.kv_address, kNames);
      address && !address->value(kNames[0]).empty()) {
    return std::string(address->value(kNames[0]));
  }
  return std::to_string(worker.port);
}

Words worker_words(const net::WorkerEntry& worker) {
  const std::string port = std::to_string(worker.port);
  return {{"address", address_text(worker.host, worker.port)},
          {"worker_host", worker.host},
          {"worker_port", port},
          {"bootstrap_port", bootstrap_port(worker)},
          {"name", worker.name},
          {"role", role_word(worker.role)}};
}

Words instance_words(const RecipeValues& values) {
  return {{"host", values.host},
          {"port", std::to_string(values.port)},
          {"spare_port", std::to_string(values.spare_port)},
          {"model", values.model}};
}

std::vector<std::string> expand(const RecipeList& list, const Words& instance,
                                std::span<const net::WorkerEntry> workers) {
  std::vector<std::string> parts;
  for (const net::WorkerEntry& worker : workers) {
    if (list.of != net::Role::kBoth && worker.role != list.of) {
      continue;
    }
    Words words = worker_words(worker);
    words.insert(instance.begin(), instance.end());
    for (const std::string& each : list.each) {
      parts.push_back(fill_words(each, words));
    }
  }
  if (!list.join) {
    return parts;
  }
  std::string joined;
  for (const std::string& part : parts) {
    joined += (&part == &parts.front() ? "" : *list.join) + part;
  }
  return {joined};
}

// The words of an instance, and every list that is joined into one text.
Words all_words(const RouterRecipe& recipe, const RecipeValues& values,
                std::span<const net::WorkerEntry> workers) {
  Words words = instance_words(values);
  for (const auto& [name, list] : recipe.lists) {
    if (list.join) {
      words.emplace(name, expand(list, words, workers).front());
    }
  }
  return words;
}

// --- reading

WordNames with(WordNames names, std::initializer_list<const char*> more) {
  names.insert(more.begin(), more.end());
  return names;
}

void read_list(ConfigReader& in, RecipeList& list) {
  in.field(
      "of", list.of,
      {{"all", net::Role::kBoth}, {"prefill", net::Role::kPrefill}, {"decode", net::Role::kDecode}},
      {"Whose."});
  in.field("each", list.each, {"What each worker adds."});
  if (in.has("join")) {
    in.field("join", list.join.emplace(), {"Makes one text of all, with this between."});
  }
  WordNames known = known_of_worker();
  known.merge(known_of_instance());
  check_words(in, "each", list.each, known);
  if (list.each.empty()) {
    in.fail("each", "is missing: what each worker adds");
  }
}

void read_call(ConfigReader& in, const char* key, RecipeCall& call) {
  in.section(key, {"A call for one worker."}, [&](ConfigReader& section) {
    section.field("method", call.method, {"POST, DELETE, ..."});
    section.field("path", call.path, {"With the query."});
    section.field("body", call.body, {"JSON."});
    const WordNames known = with(known_of_worker(), {"id", "encoded_address", "encoded_name"});
    check_words(section, "path", call.path, known);
    check_words(section, "body", call.body, known);
  });
  if (call.method.empty() || !call.path.starts_with('/')) {
    in.fail(key, "needs a method, and a path that begins with /");
  }
}

void read_members(ConfigReader& in, RouterRecipe& recipe) {
  in.section("members", {"Reads back whom the router knows."}, [&](ConfigReader& section) {
    section.field("path", recipe.members_path, {"Of a GET."});
    section.field("array", recipe.members_array, {"The member of the answer that lists them."});
    section.field("key", recipe.member_key, {"The member of each that names it."});
    section.field("name", recipe.member_name, {"That name."});
    check_words(section, "name", recipe.member_name, known_of_worker());
    if (!recipe.members_path.empty() && !recipe.members_path.starts_with('/')) {
      section.fail("path", "must begin with /");
    }
  });
}

void read_membership(ConfigReader& in, RouterRecipe& recipe) {
  in.field("membership", recipe.membership,
           {{"restart", MembershipBy::kRestart}, {"http", MembershipBy::kHttp}},
           {"How it learns who is there."});
  if (recipe.membership == MembershipBy::kHttp) {
    read_call(in, "add", recipe.add);
    read_call(in, "remove", recipe.remove);
    if (recipe.members_path.empty()) {
      in.fail("members", "is missing: what is told by http is read back");
    }
  }
}

// In a command, an argument that is a list expands to all of the list's arguments.
void check_texts(ConfigReader& in, const RouterRecipe& recipe) {
  WordNames texts = known_of_instance();
  WordNames arguments = texts;
  for (const auto& [name, list] : recipe.lists) {
    arguments.insert(name);
    if (list.join) {
      texts.insert(name);
    }
  }
  const auto check_command = [&](const char* key, const std::vector<std::string>& command) {
    for (const std::string& argument : command) {
      const bool is_list = argument.size() > 2 && argument.front() == '{' &&
                           recipe.lists.contains(argument.substr(1, argument.size() - 2));
      check_words(in, key, argument, is_list ? arguments : texts);
    }
  };
  check_command("command", recipe.command);
  check_command("plain_command", recipe.plain_command);
  check_words(in, "environment", recipe.environment, texts);
}

void read(ConfigReader& in, RouterRecipe& recipe) {
  in.field("install", recipe.install, {"What to do where its program is not found."});
  in.field("command", recipe.command, {"Program and arguments before a disaggregated job."});
  in.field("plain_command", recipe.plain_command, {"The same before any other job."});
  in.field("environment", recipe.environment, {"NAME=value, each."});
  in.field("key_environment", recipe.key_environment,
           {"The variable from which it takes the key that it shows to the workers of a "
            "disaggregated job. Without it, worker ports are open."});
  in.named_sections("lists", {"Parts that have something of each worker."},
                    [&](const std::string& name, ConfigReader& section) {
                      read_list(section, recipe.lists[name]);
                    });
  in.field("ready", recipe.ready_path, {"Path of a GET that is answered with 200."});
  in.field("start_timeout", recipe.start_timeout, {"It must be ready within it."});
  in.field("drain_timeout", recipe.drain_timeout, {"Requests may finish for so long."});
  read_members(in, recipe);
  read_membership(in, recipe);
  check_texts(in, recipe);
  if (recipe.command.empty() && recipe.plain_command.empty()) {
    in.fail("command", "is missing: the router's program and its arguments");
  }
  if (!recipe.ready_path.starts_with('/')) {
    in.fail("ready", "must be a path that begins with /");
  }
}

}  // namespace

Result<RouterRecipe> parse_recipe(const std::string& source, const std::string& text) {
  RouterRecipe recipe{.name = source};
  ConfigReader in = ConfigReader::parse(source, text);
  read(in, recipe);
  if (const std::string errors = in.finish(); !errors.empty()) {
    return Error{ErrorCode::kInvalidArgument, errors};
  }
  return recipe;
}

Result<RouterRecipe> find_recipe(const std::string& name_or_path) {
  if (const ShippedFile* const found = find_shipped(kShipped, name_or_path)) {
    return parse_recipe(name_or_path, std::string(found->text));
  }
  if (name_or_path.find('/') == std::string::npos && !name_or_path.ends_with(".yaml")) {
    std::string known;
    for (const std::string& name : shipped_recipe_names()) {
      known += (known.empty() ? "" : ", ") + name;
    }
    return Error{ErrorCode::kInvalidArgument, "there is no recipe " + name_or_path +
                                                  ": known are " + known +
                                                  ", and the path of any .yaml file"};
  }
  PDJOB_TRY(const std::string text, read_config_file(name_or_path));
  return parse_recipe(name_or_path, text);
}

std::vector<std::string> shipped_recipe_names() { return shipped_names(kShipped); }

Status serves(const RouterRecipe& recipe, bool plain) {
  if (!(plain ? recipe.plain_command : recipe.command).empty()) {
    return ok();
  }
  return Error{ErrorCode::kUnsupported,
               plain ? recipe.name + " serves disaggregated jobs only: it has no plain_command"
                     : recipe.name + " serves no disaggregated job: it has no command"};
}

// --- rendering

std::vector<std::string> recipe_command(const RouterRecipe& recipe, const RecipeValues& values,
                                        std::span<const net::WorkerEntry> workers, bool plain) {
  const Words words = all_words(recipe, values, workers);
  std::vector<std::string> command;
  for (const std::string& argument : plain ? recipe.plain_command : recipe.command) {
    const bool braced = argument.size() > 2 && argument.front() == '{' && argument.back() == '}';
    const auto list =
        braced ? recipe.lists.find(argument.substr(1, argument.size() - 2)) : recipe.lists.end();
    if (list == recipe.lists.end()) {
      command.push_back(fill_words(argument, words));
    } else {
      const auto parts = expand(list->second, words, workers);
      command.insert(command.end(), parts.begin(), parts.end());
    }
  }
  return command;
}

std::string recipe_member_name(const RouterRecipe& recipe, const net::WorkerEntry& worker) {
  return fill_words(recipe.member_name, worker_words(worker));
}

RecipeCall recipe_call(const RouterRecipe& recipe, const RecipeCall& call,
                       const net::WorkerEntry& worker, const std::string& id) {
  Words words = worker_words(worker);
  words.emplace("model", worker.model);
  words.emplace("encoded_address", percent_encoded(words.find("address")->second));
  words.emplace("encoded_name", percent_encoded(recipe_member_name(recipe, worker)));
  words.emplace("id", id);
  return {.method = call.method,
          .path = fill_words(call.path, words),
          .body = fill_words(call.body, words)};
}

Result<std::map<std::string, std::string>> members_in(const RouterRecipe& recipe,
                                                      const std::string& answer) {
  const std::array<std::string_view, 1> array{recipe.members_array};
  PDJOB_TRY(const openai::JsonObject object, openai::JsonObject::scan(answer, array));
  std::map<std::string, std::string> members;
  for (const std::string& item : openai::json_array_items(object.value(recipe.members_array))) {
    const std::array<std::string_view, 2> names{recipe.member_key, "id"};
    PDJOB_TRY(const openai::JsonObject member, openai::JsonObject::scan(item, names));
    if (const auto name = openai::json_string(member.value(recipe.member_key))) {
      members[*name] = openai::json_string(member.value("id")).value_or("");
    }
  }
  return members;
}

}  // namespace pdjob::router
