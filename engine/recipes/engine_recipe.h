// EngineRecipe: how to start an engine of another make, how to see that it is ready and how busy it
// is, and how its KV is handed over. Each recipe is one YAML file; those in engine/recipes are part
// of the program. Words {in_braces} are filled in (engine_command.h). Value; all functions are
// Pure.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "common/config/config_reader.h"
#include "common/config/words.h"
#include "common/result.h"
#include "engine/recipes/parallel.h"

namespace pdjob::engine {

// The additions of a role, or of a kind of device, to every command.
struct RecipePart {
  std::vector<std::string> args;
  std::vector<std::string> environment;  // NAME=value
};

// Series of Prometheus text: a name, or name{label="value"}. All samples that match are added.
struct RecipeMetrics {
  std::string path;  // Empty: the engine has none.
  std::string running;
  std::string queued;
  std::string kv_used;   // Tokens.
  std::string kv_max;    // Tokens.
  std::string kv_usage;  // From 0 to 1, in place of the former two.
  // A GET that is answered with a JSON object, a member of which counts the HTTP requests under
  // way. An engine may count a request as running only after its first step. Empty: it has none.
  std::string in_flight_path;
  std::string in_flight_member;
  // Counters. While requests run, one of them grows, or KV in use changes.
  std::vector<std::string> progress;
  // Histograms, by their names without _sum and _count.
  std::string ttft;
  std::string itl;
  std::string queue_time;    // Of a request, until its first step.
  std::string prefill_time;  // Then, until its first token.
  std::string kv_time;       // Of a transfer.
  // Counter of a decode engine that grows with each prompt whose KV it received.
  std::string kv_received;
};

// Paths of POSTs that its engines serve and that pdjob passes on unread (net::WorkerEntry::routes).
struct RecipeRoutes {
  std::vector<std::string> any;      // Engines of every role.
  std::vector<std::string> prefill;  // More, of prefill engines; and so on.
  std::vector<std::string> decode;
  std::vector<std::string> both;
  // A GET that is answered with an OpenAPI document: an engine serves only those routes that are in
  // it. Empty, or without a good answer: it serves all of them.
  std::string listed_in;
};

// How it tells what is in its prefix cache: by events over ZeroMQ in vLLM's format
// (openai/kv_events/kv_events.h). Each data-parallel rank publishes at the first port plus its
// number.
struct RecipeKvEvents {
  // Two more words are for these: {kv_events_port}, {kv_replay_port}. Empty: it tells nothing.
  RecipePart part;
  std::string block_option;     // The option that sets the tokens of a block. Empty: there is none.
  uint32_t block_default = 16;  // Without that option.
};

// How an engine takes other weights, in a job of mode rollout. Each call is the path of a POST, and
// behind a space its JSON body, if it has one. Words in it are {weights_path} and
// {weights_version}.
struct RecipeWeights {
  std::vector<std::string> environment;  // NAME=value, of an engine whose weights change.
  std::string pause;
  std::string flush;  // Drops all kept prompts. It is repeated until it succeeds.
  std::string load;   // Empty: it cannot.
  std::string resume;

  bool can_change() const { return !load.empty(); }
};

// Users may switch it on, by its name in `engine.features`.
struct RecipeFeature {
  std::string name;
  std::string since;  // The engine's first version that has it.
  RecipePart prefill;
  RecipePart decode;
  RecipePart both;
  std::string text;  // The value of the word {name}; without the feature, it is empty.
  uint32_t background_priority = 0;  // As net::WorkerEntry has it.
  std::string refused_because;       // Why pdjob's own router cannot use it. Empty: it can.
};

// How it uses a store of KV that is a program of another make (engine/stores). Words for both are
// {store_host}, {store_port} and {store_transport}. The engine has {store_file}, a path, on top;
// the store has {store_bytes} and {store_gb}.
struct RecipeStore {
  std::string kind;   // A word of `kv_store.kind`.
  std::string since;  // The engine's first version that can.
  RecipePart prefill;
  RecipePart decode;
  RecipePart both;
  std::string file;  // The text of {store_file}. Empty: it needs none.
};

struct EngineRecipe {
  std::string name;
  std::string install;                   // What to do if its program is not found.
  std::vector<std::string> command;      // Program and arguments.
  std::vector<std::string> environment;  // NAME=value
  RecipePart prefill;
  RecipePart decode;
  RecipePart both;  // An engine that does all of a request.
  RecipePart cpu;
  RecipePart gpu;
  RecipePart gpu_part;  // On top, for an engine that has a part of a GPU: it keeps to {gpu_memory}.
  RecipePart near;      // An engine whose nearest NICs are known.
  // The variable from which it takes the key that it asks of clients. Empty: it asks for none.
  std::string key_environment;
  std::vector<std::string> open;   // What answers without the key.
  std::vector<std::string> ports;  // Words for more ports than {port}.
  // Words for the first of so many ports in a row as the engine has data-parallel ranks.
  std::vector<std::string> rank_ports;
  std::vector<std::string> head_ports;  // Of an engine over several nodes: ports of its first node.
  ParallelOptions parallel;
  RecipePart nodes;     // For each node of an engine over several.
  RecipePart follower;  // On top, for each but the first.
  // Options that both roles of a model must have alike, or KV of one means nothing to the other.
  std::vector<std::string> alike;

  std::string ready_path;      // A GET that is answered with 200 when it is ready.
  std::string warm_up_path;    // A POST of a completion; empty: it warms up by itself.
  std::string version_path;    // A GET that returns a JSON object; empty: there is none.
  std::string version_member;  // Of that object.

  std::string protocol = "nixl";  // A word of recipe_protocols().
  std::string kv_address;         // Of a prefill engine (net::WorkerEntry::kv_address); JSON.
  std::string abort;              // net::WorkerEntry::abort
  RecipeKvEvents kv_events;
  bool publishes = false;  // Not from the recipe: this engine shall tell its KV events.
  std::vector<RecipeFeature> features;
  std::vector<RecipeStore> stores;
  RecipeMetrics metrics;
  RecipeWeights weights;

  RecipeRoutes routes;
  // A GET that lists its model and its adapters, as OpenAI's /v1/models does. Empty: there is
  // none.
  std::string models_path;
  // How a request names an adapter, with {model} and {adapter}. Empty: by the adapter's own name.
  std::string adapter_name;
  const RecipeFeature* feature(std::string_view named) const;  // Null: it has none.
  const RecipeStore* store(std::string_view kind) const;       // The same.
};

// Those of its engines of this role: "prefill", "decode" or "both".
std::vector<std::string> routes_of(const EngineRecipe& recipe, std::string_view role);

// The protocols by which engines of other makes hand over KV, by their words in router.protocol.
const std::vector<std::string>& recipe_protocols();

// Whether a word of the part `near` lists NICs.
bool is_nic_word(std::string_view word);

// Declares the keys of a recipe, and checks their rules.
void read(ConfigReader& in, EngineRecipe& recipe);
// kInvalidArgument: the error lists everything wrong with the text, as config_reader.h does.
Result<EngineRecipe> parse_engine_recipe(const std::string& source, const std::string& text);
// A recipe that is part of the program, by its name. Requires: there is one.
EngineRecipe shipped_engine_recipe(std::string_view name);
const std::vector<std::string>& shipped_engine_recipes();  // Their names.

// A port that an engine needs, or several in a row.
struct PortWord {
  std::string word;  // Of the first.
  uint32_t count = 1;
};
// All, {port} first.
std::vector<PortWord> port_words(const EngineRecipe& recipe, const EngineShape& shape);

}  // namespace pdjob::engine
