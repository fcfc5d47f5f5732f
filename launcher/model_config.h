// ModelConfig: one model of a job, who serves it and how, and where its file is found. A job has
// one (`model`) or several (`models`). Value.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "common/config_reader.h"
#include "common/limits.h"
#include "common/result.h"
#include "decode/decode_config.h"
#include "engine/engine_config.h"
#include "prefill/prefill_config.h"

namespace pdjob::launcher {

inline constexpr uint32_t kWorkersPerRoleMax = limits::kWorkersMax / 2 - 1;

// Where models and state are looked for; read from the environment by main.cc only.
struct Places {
  std::string home;        // $HOME
  std::string models;      // $PDJOB_MODELS, may be empty.
  std::string state_home;  // $XDG_STATE_HOME, may be empty.
};
Places places_from_environment();

// Its sections are those of the job, with its own keys in `models` in place of theirs.
struct ModelConfig {
  std::string name;         // In `models`; empty: the job's one `model`.
  std::string model;        // As written.
  std::string served_name;  // No two models have the same.
  uint32_t prefill_workers =
      1;  // 0: not disaggregated, decode workers compute their prompts themselves.
  uint32_t decode_workers = 1;
  engine::EngineConfig prefill_engine;  // The common `engine:` keys, overridden by the role's own.
  engine::EngineConfig decode_engine;
  prefill::PrefillConfig prefill;
  decode::DecodeConfig decode;

  bool disaggregated() const { return prefill_workers > 0; }
};

// The reference need not tell the keys of a section again where they override it.
enum class Overrides { kRead, kOnlyNamed };
// The keys of `model`, or `models`, and of the sections that models may override: `engine`,
// `prefill` and `decode`. Always gives one at least.
void read_models(ConfigReader& in, Overrides overrides, std::vector<ModelConfig>& models);
// Finds the file of each, names it, and checks what they have to keep to.
void check_models(ConfigReader& in, const Places& places, std::vector<ModelConfig>& models);

// Of a job or a model: a-z, 0-9, - and _.
bool is_job_name(std::string_view name);

// `~/x` is below home; anything else stays.
std::string expand_home(const std::string& path, const Places& places);
// The file of a model as a job file or a flag names it: a path to a .gguf, or a name that `./dev
// model` installed.
Result<std::string> find_model(const std::string& model, const Places& places);

}  // namespace pdjob::launcher
