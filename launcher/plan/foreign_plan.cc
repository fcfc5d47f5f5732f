#include "launcher/plan/foreign_plan.h"

#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <utility>

#include "common/parse_number.h"
#include "engine/recipes/engine_command.h"
#include "engine/recipes/options.h"
#include "launcher/plan/gpu_shares.h"
#include "worker/foreign/engine_process.h"

namespace pdjob::launcher {
namespace {

constexpr const char* kEngineIdShown = "NEW-WITH-EACH-START";

const engine::EngineConfig& engine_of(const ModelConfig& model, net::Role role) {
  return role == net::Role::kPrefill ? model.prefill_engine : model.decode_engine;
}

std::string list_of(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) {
    text += (text.empty() ? "" : ", ") + word;
  }
  return text;
}

engine::EngineCommand command_of(const JobConfig& config, const engine::EngineConfig& engine,
                                 const engine::EngineRecipe& recipe, const PlanRow& row,
                                 size_t slot) {
  net::ProcessSpec spec;
  spec.name = row.name;
  spec.role = row.role;
  spec.host = row.host;
  spec.engine_id = kEngineIdShown;
  engine::EngineValues values = worker::engine_values(spec, engine, config.kvtransfer.lease);
  const engine::PortBand& band = engine.foreign.ports;
  const size_t size = size_t{1} + band.last - band.first;
  size_t next = worker::first_port_of_slot(recipe, slot);
  for (uint16_t port : engine::ports_of_user(recipe, engine.foreign, values)) {
    values.ports.push_back(port != 0 ? port : static_cast<uint16_t>(band.first + next++ % size));
  }
  return engine::engine_command(recipe, engine.foreign, values);
}

// The workers in the order in which make_plan() lists them.
template <class Found>
void for_each_foreign(const JobConfig& config, const Found& found) {
  for (const ModelConfig& model : config.models) {
    const std::string prefix = model.name.empty() ? "" : model.name + "-";
    for (uint32_t i = 0; i < model.prefill_workers; ++i) {
      if (model.prefill_engine.kind == engine::EngineKind::kForeign) {
        found(prefix + "prefill-" + std::to_string(i));
      }
    }
    for (uint32_t i = 0; i < model.decode_workers; ++i) {
      if (model.decode_engine.kind == engine::EngineKind::kForeign) {
        found(prefix + "decode-" + std::to_string(i));
      }
    }
  }
}

// The GPUs that one engine takes: the product of its parallel sizes. Makes call these options
// alike, such as --tensor-parallel-size.
uint64_t gpus_of(const std::vector<std::string>& args) {
  constexpr uint64_t kProductMax = 1 << 20;
  uint64_t gpus = 1;
  for (size_t i = 0; i < args.size(); ++i) {
    const bool parallel =
        engine::is_option(args[i]) && engine::option_name(args[i]).ends_with("-parallel-size");
    const std::string value = parallel ? engine::option_value(args, i) : "";
    const auto factor = parse_number<uint64_t>(value).value_or(1);
    gpus *= std::clamp<uint64_t>(factor, 1, kProductMax / gpus);
  }
  return gpus;
}

// The user may have given it more by hand.
bool names_gpus(const engine::EngineCommand& command, uint64_t gpus) {
  for (const auto& [name, value] : command.environment) {
    if (name == "CUDA_VISIBLE_DEVICES" && gpus_of_setting(value).size() >= gpus) {
      return true;
    }
  }
  return false;
}

// A worker gets one GPU, whatever its engine would take.
void warn_of_gpus(const engine::EngineConfig& engine, const engine::EngineRecipe& recipe,
                  const engine::EngineCommand& command, const PlanRow& row,
                  const std::function<void(const std::string&)>& warn) {
  const uint64_t gpus = gpus_of(engine.foreign.args);
  if (engine.gpu && gpus > 1 && !names_gpus(command, gpus)) {
    warn(std::string("an engine of role ") + to_string(row.role) + " takes " +
         std::to_string(gpus) + " GPUs by its engine.args, and pdjob gives a worker one: " +
         recipe.name + " will not start");
  }
}

void warn_of_open_doors(const engine::EngineRecipe& recipe, const std::string& host,
                        const std::function<void(const std::string&)>& warn) {
  if (recipe.open.empty() && !recipe.key_environment.empty()) {
    return;
  }
  const std::string open = recipe.open.empty() ? "every route" : list_of(recipe.open);
  warn(recipe.name + " answers without a key: " + open + "; it listens on " + host);
}

}  // namespace

size_t foreign_slot(const JobConfig& config, const std::string& worker) {
  size_t slot = 0;
  size_t seen = 0;
  for_each_foreign(config, [&](const std::string& name) {
    slot = name == worker ? seen : slot;
    seen += 1;
  });
  return slot;
}

void plan_foreign_engines(const JobConfig& config, LaunchPlan& plan) {
  std::set<std::string> warned;
  const auto warn = [&](const std::string& text) {
    if (warned.insert(text).second) {
      plan.warnings.push_back(text);
    }
  };
  std::map<std::pair<uint16_t, uint16_t>, size_t> ports_wanted;   // By band.
  std::map<std::pair<std::string, uint16_t>, size_t> engines_at;  // By node and port.
  for (PlanRow& row : plan.rows) {
    const ModelConfig* const model = config.model_called(row.model);
    if (model == nullptr || engine_of(*model, row.role).kind != engine::EngineKind::kForeign) {
      continue;
    }
    const engine::EngineConfig& engine = engine_of(*model, row.role);
    const engine::EngineRecipe recipe = engine::recipe_of(engine.foreign);
    const engine::EngineCommand command =
        command_of(config, engine, recipe, row, foreign_slot(config, row.name));
    row.command = engine::shell_text(command, recipe.key_environment);
    row.port = command.port();
    if (engines_at[{row.node, row.port}]++ == 1) {
      warn("port " + std::to_string(row.port) + " is for several engines of node " + row.node +
           ", by their arguments: only one of them will start");
    }
    const engine::PortBand& band = engine.foreign.ports;
    ports_wanted[{band.first, band.last}] += recipe.ports.size() + 1;
    for (const std::string& warning : command.warnings) {
      warn(warning);
    }
    warn_of_gpus(engine, recipe, command, row, warn);
    warn_of_open_doors(recipe, command.words.at("host"), warn);
  }
  for (const auto& [band, wanted] : ports_wanted) {
    if (const size_t size = size_t{1} + band.second - band.first; wanted > size) {
      warn("engine.ports has " + std::to_string(size) + " ports, and the engines want " +
           std::to_string(wanted) + ": some will not start");
    }
  }
}

}  // namespace pdjob::launcher
