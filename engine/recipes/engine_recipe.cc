#include "engine/recipes/engine_recipe.h"

#include <algorithm>
#include <array>
#include <map>

#include "common/check.h"
#include "common/config/http_paths.h"
#include "common/config/shipped_files.h"
#include "engine/recipes/version.h"

namespace pdjob::engine {
namespace {

constexpr auto kShipped = std::to_array<ShippedFile>({
#include "engine/recipes/shipped_recipes.inc"
});

constexpr size_t kPortsMax = 8;
// Engines take some of the next ports, too, without being asked.
constexpr uint32_t kPortsOfRendezvous = 16;
constexpr auto kNicWords = std::to_array<const char*>({"nics", "nic_ports"});

constexpr auto kStoreWords = std::to_array<const char*>(
    {"store_host", "store_port", "store_transport", "store_bytes", "store_gb", "store_file"});

constexpr const char* kEventsPort = "kv_events_port";
constexpr const char* kReplayPort = "kv_replay_port";

WordNames known_words(const EngineRecipe& recipe) {
  WordNames known = {"model",     "served_name", "name",          "role",      "host",
                     "port",      "engine_id",   "lease_seconds", "threads",   "device",
                     "tensor",    "pipeline",    "data",          "gpus",      "nodes",
                     "node_rank", "head_host",   "interface",     "gpu_memory"};
  for (const auto* const ports : {&recipe.ports, &recipe.rank_ports, &recipe.head_ports}) {
    known.insert(ports->begin(), ports->end());
  }
  for (const RecipeFeature& feature : recipe.features) {
    known.insert(feature.name);
  }
  known.insert(kStoreWords.begin(), kStoreWords.end());
  return known;
}

bool is_word(std::string_view name) {
  return !name.empty() &&
         std::ranges::all_of(name, [](char c) { return (c >= 'a' && c <= 'z') || c == '_'; });
}

// A name, or name{label="value"}.
bool is_series(std::string_view text) {
  const size_t brace = text.find('{');
  const std::string_view name = text.substr(0, brace);
  const auto in_name = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           c == ':';
  };
  const bool named = !name.empty() && std::ranges::all_of(name, in_name);
  return named && (brace == std::string_view::npos ||
                   (text.ends_with("\"}") && text.find("=\"", brace) != std::string_view::npos));
}

void check_environment(ConfigReader& in, std::string_view key,
                       const std::vector<std::string>& variables) {
  for (const std::string& variable : variables) {
    if (const size_t equals = variable.find('='); equals == 0 || equals == std::string::npos) {
      in.fail(key, "must be a list of NAME=value, got " + variable);
    }
  }
}

void read_part(ConfigReader& in, const char* key, FieldText text, const WordNames& known,
               RecipePart& part) {
  in.section(key, text, [&](ConfigReader& section) {
    section.field("args", part.args, {"More arguments."});
    section.field("environment", part.environment, {"More variables: NAME=value, each."});
    check_words(section, "args", part.args, known);
    check_words(section, "environment", part.environment, known);
    check_environment(section, "environment", part.environment);
  });
}

void read_metrics(ConfigReader& in, RecipeMetrics& metrics) {
  const auto series = [&in](const char* key, std::string& value, FieldText text) {
    in.field(key, value, text);
    if (!value.empty() && !is_series(value)) {
      in.fail(key, "must be NAME or NAME{label=\"value\"}, got " + value);
    }
  };
  in.field("path", metrics.path, {"Path of a GET that is answered with Prometheus text."});
  series("running", metrics.running, {"Requests that run."});
  series("queued", metrics.queued, {"Requests that wait."});
  series("kv_used", metrics.kv_used, {"Tokens whose KV is held."});
  series("kv_max", metrics.kv_max, {"Tokens whose KV fits."});
  series("kv_usage", metrics.kv_usage, {"In place of these two: the share in use, from 0 to 1."});
  in.field("progress", metrics.progress,
           {"Counters. While requests run, one of them grows or KV in use changes, or the engine "
            "is hung."});
  for (const std::string& counter : metrics.progress) {
    if (!is_series(counter)) {
      in.fail("progress", "must be NAME or NAME{label=\"value\"}, got " + counter);
    }
  }
  series("ttft", metrics.ttft, {"A histogram in seconds: time to first token."});
  series("itl", metrics.itl, {"A histogram in seconds: inter-token latency."});
  series("queue_time", metrics.queue_time,
         {"A histogram in seconds: what a request waits before its first step."});
  series("prefill_time", metrics.prefill_time,
         {"A histogram in seconds: from then to its first token."});
  series("kv_time", metrics.kv_time, {"A histogram in seconds: a transfer of KV."});
  series("kv_received", metrics.kv_received,
         {"A counter of a decode engine that grows with each prompt whose KV it received. It "
          "proves that KV moves."});
  in.section("in_flight", {"Where it counts the HTTP requests under way, if it does."},
             [&](ConfigReader& section) {
               section.field("path", metrics.in_flight_path,
                             {"Path of a GET that is answered with a JSON object."});
               section.field("member", metrics.in_flight_member, {"The member of that object."});
             });
  if (metrics.in_flight_path.empty() != metrics.in_flight_member.empty()) {
    in.fail("in_flight", "needs both path and member");
  }
  if (!metrics.in_flight_path.empty() && !metrics.in_flight_path.starts_with('/')) {
    in.fail("in_flight", "path must begin with /");
  }
  if (in.keys().empty()) {
    return;  // A section that is absent.
  }
  if (metrics.path.empty()) {
    in.fail("path", "is missing: where the metrics are");
  }
  if (metrics.running.empty()) {
    in.fail("running", "is missing: without it, a busy engine would be ended like an idle one");
  }
  if (metrics.progress.empty()) {
    in.fail("progress", "is missing: without it, a hung engine is not seen");
  }
  if (!metrics.path.empty() && !metrics.path.starts_with('/')) {
    in.fail("path", "must begin with /");
  }
}

void read_ports(ConfigReader& in, EngineRecipe& recipe) {
  in.field("ports", recipe.ports,
           {"Words for ports that the engine needs besides {port}, such as bootstrap_port."});
  in.field("rank_ports", recipe.rank_ports,
           {"Words for the first of several ports in a row, one for each data-parallel rank."});
  in.field("head_ports", recipe.head_ports,
           {"Words for ports of the first node of an engine over several nodes."});
  for (const auto& [key, ports] :
       {std::pair("ports", &recipe.ports), std::pair("rank_ports", &recipe.rank_ports),
        std::pair("head_ports", &recipe.head_ports)}) {
    if (ports->size() > kPortsMax) {
      in.fail(key, "must be at most " + std::to_string(kPortsMax));
    }
    for (const std::string& port : *ports) {
      if (!is_word(port) || port == "port" || port == kEventsPort || port == kReplayPort) {
        in.fail(key,
                "must be words of a-z and _ other than port, kv_events_port and "
                "kv_replay_port, got " +
                    port);
      }
    }
  }
}

void read_kv_events(ConfigReader& in, const WordNames& known, RecipeKvEvents& events) {
  WordNames known_here = known;
  known_here.insert({kEventsPort, kReplayPort});
  read_part(
      in, "kv_events",
      {"Additions for an engine that tells what is in its prefix cache, in vLLM's format over "
       "ZeroMQ. Two more words are for these: {kv_events_port} and {kv_replay_port}. Each "
       "data-parallel rank has these ports plus its number."},
      known_here, events.part);
  in.section("kv_blocks", {"The blocks that these events speak of."}, [&](ConfigReader& section) {
    section.field("option", events.block_option, {"The option that sets their tokens."});
    section.field("tokens", events.block_default, {"Their tokens without that option.", "tokens"},
                  {1, 1U << 20});
  });
}

// Items whose names are the keys of a section. Those that it does not name stay. `body(item,
// section)` declares the keys of each.
template <class Item, class Body>
void read_named(ConfigReader& in, const char* key, FieldText text, std::vector<Item>& items,
                std::string Item::* name, const Body& body) {
  std::vector<std::string> names;
  for (const Item& item : items) {
    names.push_back(item.*name);
  }
  in.named_sections(
      key, text,
      [&](const std::string& named, ConfigReader& section) {
        const auto known = std::ranges::find(items, named, name);
        Item item = known == items.end() ? Item{} : *known;
        item.*name = named;
        body(item, section);
        std::erase_if(items, [&](const Item& one) { return one.*name == named; });
        if (!named.empty()) {
          items.push_back(std::move(item));
        }
      },
      names);
}

void read_stores(ConfigReader& in, WordNames known, EngineRecipe& recipe) {
  known.insert(kNicWords.begin(), kNicWords.end());
  read_named(
      in, "kv_stores",
      {"How it uses stores of KV of other makes, by `kv_store.kind`. Options here replace the same "
       "options of `command`, `prefill`, `decode` and `both`. Words for these are {store_host}, "
       "{store_port}, {store_transport}, {store_file} and, in `file`, {nics}."},
      recipe.stores, &RecipeStore::kind, [&known](RecipeStore& store, ConfigReader& section) {
        section.field("since", store.since, {"The first version of the engine that can."});
        read_part(section, "prefill", {"Additions for a prefill engine."}, known, store.prefill);
        read_part(section, "decode", {"Additions for a decode engine."}, known, store.decode);
        read_part(section, "both", {"Additions for an engine that does all of a request."}, known,
                  store.both);
        section.field("file", store.file, {"The text of {store_file}."});
        check_words(section, "file", store.file, known);
        if (!is_release(store.since)) {
          section.fail("since", "must be a version such as 0.21.0, got " + store.since);
        }
      });
}

// Their names are words, so they are read before all that may use words.
void read_features(ConfigReader& in, EngineRecipe& recipe) {
  read_named(
      in, "features",
      {"Features for `engine.features`, by name. A name is also a word: {NAME} is `text` "
       "with the feature, and nothing without it."},
      recipe.features, &RecipeFeature::name, [](RecipeFeature& feature, ConfigReader& section) {
        section.field("since", feature.since, {"The first version of the engine that has it."});
        section.field("prefill", feature.prefill.args, {"More arguments of a prefill engine."});
        section.field("decode", feature.decode.args, {"More arguments of a decode engine."});
        section.field("both", feature.both.args,
                      {"More arguments of an engine that does all of a request."});
        section.field("text", feature.text, {"The value of the word."});
        section.field("background_priority", feature.background_priority,
                      {"The member `priority` of requests in the background, with which the engine "
                       "lets them wait for the others. 0: it does not know such a member."},
                      {0, 1000});
        section.field("refused_because", feature.refused_because,
                      {"Why it is refused with pdjob's own router. Empty: it is not."});
        if (!is_word(feature.name)) {
          section.fail("", "a feature's name must be of a-z and _, got " + feature.name);
        }
        if (!is_release(feature.since)) {
          section.fail("since", "must be the first version of the engine that has it");
        }
      });
}

void read_spread(ConfigReader& in, const WordNames& known, EngineRecipe& recipe) {
  in.section("parallel", {"How its parallel sizes are spelled on its command line."},
             [&](ConfigReader& section) { read(section, recipe.parallel); });
  read_part(in, "nodes", {"Additions for each node of an engine over several nodes."}, known,
            recipe.nodes);
  read_part(in, "follower", {"More for each node of it but the first, which serves."}, known,
            recipe.follower);
  in.field("alike", recipe.alike,
           {"Options that prefill and decode engines must have alike; `pdjob plan` warns."});
}

void read_http(ConfigReader& in, EngineRecipe& recipe) {
  in.field("ready", recipe.ready_path, {"Path of a GET that is answered with 200 once it serves."});
  in.field("warm_up", recipe.warm_up_path,
           {"Path of a POST of a completion, which is sent before any client's request. Without "
            "it, the engine warms up by itself."});
  in.section("version", {"How it tells its version."}, [&](ConfigReader& section) {
    section.field("path", recipe.version_path, {"Path of a GET that returns a JSON object."});
    section.field("member", recipe.version_member, {"The member of that object."});
  });
  for (const auto& [key, path] :
       {std::pair("ready", recipe.ready_path), std::pair("warm_up", recipe.warm_up_path),
        std::pair("version.path", recipe.version_path)}) {
    if (!path.empty() && !path.starts_with('/')) {
      in.fail(key, "must begin with /");
    }
  }
}

void read_hand_over(ConfigReader& in, const WordNames& known, EngineRecipe& recipe) {
  std::vector<const char*> words;
  size_t index = 0;
  for (const std::string& word : recipe_protocols()) {
    index = word == recipe.protocol ? words.size() : index;
    words.push_back(word.c_str());
  }
  in.choice("protocol", index, words, {"How it hands over KV, as in `router.protocol`."});
  recipe.protocol = words[index];
  in.field("kv_address", recipe.kv_address,
           {"JSON that a router sends with a request, to say where a prefill engine's KV is."});
  in.field("abort", recipe.abort,
           {"The call that frees KV which nobody will fetch: METHOD PATH with {transfer} in it."});
  check_words(in, "kv_address", recipe.kv_address, known);
}

void read_routes(ConfigReader& in, RecipeRoutes& routes) {
  const auto paths = [&in](const char* key, std::vector<std::string>& value, FieldText text) {
    in.field(key, value, text);
    check_engine_paths(in, key, value);
  };
  paths("any", routes.any, {"Of every engine."});
  paths("prefill", routes.prefill, {"More, of a prefill engine."});
  paths("decode", routes.decode, {"More, of a decode engine."});
  paths("both", routes.both, {"More, of an engine that does all of a request."});
  in.field("listed_in", routes.listed_in,
           {"Path of a GET that is answered with an OpenAPI document: an engine serves only the "
            "routes that are in it. Without it: all of them."});
  if (!routes.listed_in.empty() && !routes.listed_in.starts_with('/')) {
    in.fail("listed_in", "must begin with /");
  }
  const size_t most = std::max({routes.prefill.size(), routes.decode.size(), routes.both.size()});
  if (routes.any.size() + most > kEnginePathsMax) {
    in.fail("any",
            "and those of a role must be at most " + std::to_string(kEnginePathsMax) + " paths");
  }
}

void read_models(ConfigReader& in, EngineRecipe& recipe) {
  in.section("routes",
             {"Paths of POSTs that an engine serves alone, without a hand-over of KV. pdjob passes "
              "them on unread."},
             [&](ConfigReader& section) { read_routes(section, recipe.routes); });
  in.field("models", recipe.models_path,
           {"Path of a GET that lists its model and its adapters (LoRA), as OpenAI's /v1/models."});
  in.field("adapter_name", recipe.adapter_name,
           {"How a request names an adapter: {model} is its model, {adapter} its own name. Without "
            "it: by its own name."});
  check_words(in, "adapter_name", recipe.adapter_name, {"model", "adapter"});
  if (!recipe.models_path.empty() && !recipe.models_path.starts_with('/')) {
    in.fail("models", "must begin with /");
  }
}

void read_weights(ConfigReader& in, RecipeWeights& weights) {
  in.field("environment", weights.environment,
           {"Variables of an engine whose weights change: NAME=value, each."});
  check_environment(in, "environment", weights.environment);
  const auto call = [&in](const char* key, std::string& value, FieldText text) {
    in.field(key, value, text);
    check_words(in, key, value, {"weights_path", "weights_version"});
    if (!value.empty() && !value.starts_with('/')) {
      in.fail(key, "must be the path of a POST, and behind a space its JSON body");
    }
  };
  call("pause", weights.pause,
       {"The path of a POST, and behind a space its JSON body: it ends all requests and admits no "
        "new one. An answer fails whose `success` is false."});
  call("flush", weights.flush,
       {"The same: it drops all kept prompts. It is repeated until it succeeds."});
  call("load", weights.load,
       {"The same: it loads weights in place. {weights_path} is their folder, {weights_version} "
        "their version."});
  call("resume", weights.resume, {"The same: it admits requests again."});
  if (weights.load.empty() && !in.keys().empty()) {
    in.fail("load", "is missing: how it loads weights");
  }
  if (!weights.load.empty() && weights.flush.empty()) {
    in.fail("flush", "is missing: prompts of the old weights would be used with the new ones");
  }
}

}  // namespace

const RecipeStore* EngineRecipe::store(std::string_view kind) const {
  const auto found = std::ranges::find(stores, kind, &RecipeStore::kind);
  return found == stores.end() ? nullptr : &*found;
}

const RecipeFeature* EngineRecipe::feature(std::string_view named) const {
  const auto found = std::ranges::find(features, named, &RecipeFeature::name);
  return found == features.end() ? nullptr : &*found;
}

bool is_nic_word(std::string_view word) {
  return std::ranges::find(kNicWords, word) != kNicWords.end();
}

std::vector<std::string> routes_of(const EngineRecipe& recipe, std::string_view role) {
  const RecipeRoutes& routes = recipe.routes;
  std::vector<std::string> all = routes.any;
  const auto& more = role == "prefill"  ? routes.prefill
                     : role == "decode" ? routes.decode
                                        : routes.both;
  all.insert(all.end(), more.begin(), more.end());
  return all;
}

const std::vector<std::string>& recipe_protocols() {
  static const std::vector<std::string> words = {"nixl", "nixl_push", "sglang"};
  return words;
}

void read(ConfigReader& in, EngineRecipe& recipe) {
  in.field("install", recipe.install, {"What to do where its program is not found."});
  read_ports(in, recipe);
  read_features(in, recipe);
  const WordNames known = known_words(recipe);
  in.field("command", recipe.command, {"Program and arguments."});
  in.field("environment", recipe.environment, {"Variables: NAME=value, each."});
  read_part(in, "prefill", {"Additions for a prefill engine."}, known, recipe.prefill);
  read_part(in, "decode", {"Additions for a decode engine."}, known, recipe.decode);
  read_part(in, "both", {"Additions for an engine that does all of a request."}, known,
            recipe.both);
  read_part(in, "cpu", {"Additions for an engine that computes on CPUs."}, known, recipe.cpu);
  read_part(in, "gpu", {"Additions for an engine that computes on a GPU."}, known, recipe.gpu);
  read_part(in, "gpu_part",
            {"Additions, on top, for an engine that has a part of a GPU. {gpu_memory} is what it "
             "may take of the GPU's memory: nine tenths of its part, such as 0.45."},
            known, recipe.gpu_part);
  read_spread(in, known, recipe);
  WordNames known_near = known;
  known_near.insert(kNicWords.begin(), kNicWords.end());
  read_part(in, "near",
            {"Additions for an engine whose nearest NICs are known. Two more words are for these: "
             "{nics} is mlx5_0,mlx5_1 and {nic_ports} is mlx5_0:1,mlx5_1:1."},
            known_near, recipe.near);
  in.field(
      "key_environment", recipe.key_environment,
      {"The variable from which it takes the key that it asks of clients. Without it, its port "
       "is open."});
  in.field("open", recipe.open, {"What answers without the key; `pdjob plan` shows it."});
  read_http(in, recipe);
  read_hand_over(in, known, recipe);
  read_kv_events(in, known, recipe.kv_events);
  read_stores(in, known, recipe);
  in.section("metrics", {"Where it says how busy it is."},
             [&](ConfigReader& section) { read_metrics(section, recipe.metrics); });
  in.section("weights", {"How it takes other weights, for `mode: rollout`."},
             [&](ConfigReader& section) { read_weights(section, recipe.weights); });
  read_models(in, recipe);
  check_words(in, "command", recipe.command, known);
  check_words(in, "environment", recipe.environment, known);
  check_environment(in, "environment", recipe.environment);
  if (in.keys().empty()) {
    return;  // A section that is absent.
  }
  if (recipe.command.empty()) {
    in.fail("command", "is missing: the engine's program and its arguments");
  }
  if (recipe.ready_path.empty()) {
    in.fail("ready", "is missing: a path that is answered with 200 once the engine serves");
  }
}

Result<EngineRecipe> parse_engine_recipe(const std::string& source, const std::string& text) {
  EngineRecipe recipe{.name = source};
  ConfigReader in = ConfigReader::parse(source, text);
  read(in, recipe);
  if (const std::string errors = in.finish(); !errors.empty()) {
    return Error{ErrorCode::kInvalidArgument, errors};
  }
  return recipe;
}

EngineRecipe shipped_engine_recipe(std::string_view name) {
  static const auto all = [] {
    std::map<std::string, EngineRecipe, std::less<>> recipes;
    for (const std::string& known : shipped_engine_recipes()) {
      auto recipe = parse_engine_recipe(known, std::string(find_shipped(kShipped, known)->text));
      PDJOB_CHECK(recipe.has_value(), recipe.error().message);
      recipes.emplace(known, *std::move(recipe));
    }
    return recipes;
  }();
  const auto found = all.find(name);
  PDJOB_CHECK(found != all.end(), std::string(name));
  return found->second;
}

const std::vector<std::string>& shipped_engine_recipes() {
  static const std::vector<std::string> known = shipped_names(kShipped);
  return known;
}

std::vector<PortWord> port_words(const EngineRecipe& recipe, const EngineShape& shape) {
  std::vector<PortWord> words = {{.word = "port"}};
  for (const std::string& port : recipe.ports) {
    words.push_back({.word = port});
  }
  for (const std::string& port : recipe.rank_ports) {
    words.push_back({.word = port, .count = shape.data});
  }
  if (recipe.publishes) {
    words.push_back({.word = kEventsPort, .count = shape.data});
    words.push_back({.word = kReplayPort, .count = shape.data});
  }
  for (const std::string& port : recipe.head_ports) {
    if (shape.nodes > 1) {
      words.push_back({.word = port, .count = kPortsOfRendezvous});
    }
  }
  return words;
}

}  // namespace pdjob::engine
