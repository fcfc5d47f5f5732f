// ModelConfig: one model of a job: its workers and the place of its file. A job has one (`model`)
// or several (`models`). Value.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "common/config/config_reader.h"
#include "common/limits.h"
#include "common/result.h"
#include "decode/decode_config.h"
#include "engine/engine_config.h"
#include "launcher/plan/group_config.h"
#include "net/control/message.h"
#include "prefill/prefill_config.h"
#include "router/config/router_config.h"

namespace pdjob::launcher {

// Folders to search for models and state, and a key. Only main.cc reads them from the environment.
struct Places {
  std::string home;    // $HOME
  std::string models;  // $PDJOB_MODELS, may be empty.
  // The models of packages: share/pdjob/models beside the folder of the program. Empty if there is
  // no such folder.
  std::string packaged;
  std::string state_home;  // $XDG_STATE_HOME, may be empty.
  std::string api_key;     // $PDJOB_API_KEY, may be empty: of the server of a batch.
  // False: model files are not looked for, because they are on the machines of their workers.
  bool models_here = true;
  bool models_elsewhere = false;  // One that is missing here may be on the nodes.
  // Of a job file that is a copy: the path of the original, where relative paths begin.
  std::string original;
};
Places places_from_environment();

// Each model starts from the job's sections; its own keys in `models` override theirs.
struct ModelConfig {
  std::string name;         // In `models`; empty: the job's one `model`.
  std::string model;        // A path, which begins at the file's folder, or a name.
  std::string served_name;  // Unique in the job.
  uint32_t prefill_workers =
      1;  // 0: not disaggregated, decode workers compute their prompts themselves.
  uint32_t decode_workers = 1;
  engine::EngineConfig prefill_engine;  // The common `engine:` keys, overridden by the role's own.
  engine::EngineConfig decode_engine;
  prefill::PrefillConfig prefill;
  decode::DecodeConfig decode;
  GroupConfig prefill_group;
  GroupConfig decode_group;

  bool disaggregated() const { return prefill_workers > 0; }
  const engine::EngineConfig& engine_of(net::Role role) const {
    return role == net::Role::kPrefill ? prefill_engine : decode_engine;
  }
};

// kRead reads the keys of overriding sections. kOnlyNamed only names these sections, because the
// reference lists their keys elsewhere.
enum class Overrides { kRead, kOnlyNamed };
// Reads the keys of `model` or `models`, and the sections that models may override: `engine`,
// `prefill` and `decode`. `models` then has at least one entry.
void read_models(ConfigReader& in, Overrides overrides, std::vector<ModelConfig>& models);
// Finds each model's file, sets its served name, and checks the rules for models.
void check_models(ConfigReader& in, const Places& places, std::vector<ModelConfig>& models);

// Lets engines of other makes tell their KV events where the router goes by them, and checks what
// of their keys depends on the router. `store`: the kind of the job's stores, if they are of
// another make.
void check_engines_and_router(ConfigReader& in, const router::RouterConfig& router,
                              std::string_view store, std::vector<ModelConfig>& models);

// Valid name of a job or a model: a-z, 0-9, - and _.
bool is_job_name(std::string_view name);

// Replaces a leading `~/` by the home folder.
std::string expand_home(const std::string& path, const Places& places);
// Sets the path of the model's file on this machine; `model` is as in ModelConfig.
Status find_file(const std::string& model, const Places& places, engine::EngineConfig& engine);
// Finds the file of a model that a job file or a flag names: a path to a .gguf, or a name that
// `./dev model` installed.
Result<std::string> find_model(const std::string& model, const Places& places);

}  // namespace pdjob::launcher
