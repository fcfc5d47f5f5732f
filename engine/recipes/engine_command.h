// The exact command line and environment of an engine of another make. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/config/words.h"
#include "common/time.h"
#include "engine/recipes/engine_recipe.h"
#include "engine/recipes/foreign_config.h"

namespace pdjob::engine {

// A store of KV that is a program of another make, as an engine or that program itself sees it.
struct StoreUse {
  std::string kind;  // Empty: there is none.
  std::string host;  // Of the one that it asks: a master, or the store of its own machine.
  uint16_t port = 0;
  std::string transport;      // "tcp" or "rdma"
  uint64_t memory_bytes = 0;  // Of the store on each node.
};

struct EngineValues {
  std::string model;  // A path, or a name that the engine looks up.
  std::string served_name;
  std::string name;  // Of the worker.
  std::string role;  // "prefill", "decode" or "both"
  std::string host;
  std::string engine_id;  // New with each start.
  Duration lease{};       // For how long a prefill engine keeps KV that nobody has fetched.
  uint32_t threads = 1;
  bool gpu = false;
  uint32_t gpu_percent = 100;  // Of each of its GPUs.
  EngineShape shape;
  uint32_t part = 0;             // Which of its nodes this is; the first one serves.
  std::string head_host;         // Of the first one; empty: this is it.
  std::string interface;         // Of `host`; empty: unknown.
  std::string nics;              // Nearest to its GPUs: "mlx5_0,mlx5_1". Empty: unknown.
  bool changes_weights = false;  // The job is of mode rollout.
  StoreUse store = {};
  std::string store_file;       // The path of a file with EngineCommand::store_file.
  std::vector<uint16_t> ports;  // Those of port_words(), in that order.
};

struct EngineCommand {
  std::vector<std::string> argv;  // The first is the program as written.
  std::vector<std::pair<std::string, std::string>> environment;
  // The values of the words. An option of the user's that stands in place of {port} sets `port`.
  Words words;
  std::vector<std::string> warnings;  // Where the user's words replace pdjob's.

  std::string kv_address;  // As net::WorkerEntry has it.
  std::string store_file;  // What must be in EngineValues::store_file. Empty: no file is needed.

  uint16_t port() const { return port_of("port"); }
  uint16_t port_of(std::string_view word) const;  // 0: it has no such port.
};

EngineCommand engine_command(const EngineRecipe& recipe, const ForeignConfig& config,
                             const EngineValues& values);

// As net::WorkerEntry has it.
uint32_t background_priority(const EngineRecipe& recipe, const ForeignConfig& config);

// The ports, in the order of EngineValues::ports, that the user's options set; 0: pdjob chooses.
std::vector<uint16_t> ports_of_user(const EngineRecipe& recipe, const ForeignConfig& config,
                                    const EngineValues& values);

// For people: as a shell would take it. Variables that may hold secrets are named without their
// values, and so is `key_environment`.
std::string shell_text(const EngineCommand& command, std::string_view key_environment);

}  // namespace pdjob::engine
