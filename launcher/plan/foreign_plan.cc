#include "launcher/plan/foreign_plan.h"

#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "engine/recipes/engine_command.h"
#include "engine/recipes/options.h"
#include "worker/foreign/engine_place.h"

namespace pdjob::launcher {
namespace {

constexpr const char* kEngineIdShown = "NEW-WITH-EACH-START";
constexpr const char* kFileShown = "A-FILE";
constexpr const char* kInterfaceShown = "THAT-OF-THE-HOST";

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

// One node of a worker's place, and what its engine runs there.
struct EnginePart {
  const engine::EngineConfig& engine;
  const engine::EngineRecipe& recipe;
  const PlanRow& row;
  uint32_t number = 0;
  std::string host;
  std::string nics;
  uint64_t ports_from = 0;
  bool changes_weights = false;
  engine::StoreUse store = {};
};

engine::EngineCommand command_of(const EnginePart& part, Duration lease) {
  net::ProcessSpec spec;
  spec.name = part.row.name;
  spec.role = part.row.role;
  spec.host = part.host;
  spec.engine_id = kEngineIdShown;
  spec.part = part.number;
  spec.head_host = part.row.host;
  spec.nics = part.nics;
  const engine::ForeignConfig& config = part.engine.foreign;
  engine::EngineValues values = worker::engine_values(spec, part.engine, lease);
  values.interface = kInterfaceShown;
  values.changes_weights = part.changes_weights;
  values.store = part.store;
  values.store_file = kFileShown;
  const std::vector<uint16_t> own = engine::ports_of_user(part.recipe, config, values);
  size_t next = engine::band_offset(config, part.ports_from);
  for (const engine::PortWord& word : engine::port_words(part.recipe, values.shape)) {
    const uint16_t port = own[values.ports.size()];
    values.ports.push_back(
        port != 0 ? port : static_cast<uint16_t>(config.ports.first + next % config.ports.size()));
    next += port != 0 ? 0 : word.count;
  }
  return engine::engine_command(part.recipe, config, values);
}

// What an engine of `gpu: false` computes with is cheap to get wrong.
void warn_of_cpus(const engine::EngineConfig& engine, const engine::EngineShape& shape,
                  const PlanRow& row, const std::function<void(const std::string&)>& warn) {
  if (!engine.gpu && shape.ranks > 1) {
    warn(std::string("an engine of role ") + to_string(row.role) + " has " +
         std::to_string(shape.ranks) + " ranks (" + engine::sizes_text(shape) +
         ") and computes on CPUs: for GPUs, set engine.gpus: " + std::to_string(shape.ranks));
  }
}

void warn_of_files(const engine::EngineConfig& engine, const engine::EngineRecipe& recipe,
                   const std::function<void(const std::string&)>& warn) {
  for (const std::string& argument : engine.foreign.args) {
    const std::string name = engine::is_option(argument) ? engine::option_name(argument) : "";
    if (std::ranges::find(recipe.parallel.files, name) != recipe.parallel.files.end()) {
      warn("engine.args has " + name +
           ": options in that file are not seen here, so give parallel "
           "sizes and ports in the job file");
    }
  }
}

// Ranks share the heads out evenly.
Status check_heads(const engine::EngineConfig& engine, const engine::ModelFolder& folder,
                   const PlanRow& row) {
  const uint32_t tensor = engine::shape_of(engine.foreign, engine.gpu).tensor;
  if (folder.heads % tensor == 0) {
    return ok();
  }
  return Error{ErrorCode::kUnavailable,
               "the model " + row.model + " has " + std::to_string(folder.heads) +
                   " attention heads, which tensor " + std::to_string(tensor) + " of " +
                   to_string(row.role) + " does not divide"};
}

// Whether the weights in memory may be smaller than their files, or elsewhere.
bool changes_weight_bytes(const std::vector<std::string>& args) {
  return std::ranges::any_of(args, [](const std::string& argument) {
    return engine::is_option(argument) && (argument.find("quant") != std::string::npos ||
                                           argument.find("offload") != std::string::npos ||
                                           argument.find("torchao") != std::string::npos ||
                                           argument.find("load-format") != std::string::npos);
  });
}

// At the least, if all ranks among which an engine can divide its weights do so evenly.
void warn_of_weights(const engine::EngineConfig& engine, const engine::ModelFolder& folder,
                     const PlanRow& row, const std::vector<Node>& nodes,
                     const std::function<void(const std::string&)>& warn) {
  const engine::EngineShape shape = engine::shape_of(engine.foreign, engine.gpu);
  if (shape.gpus == 0 || changes_weight_bytes(engine.foreign.args)) {
    return;
  }
  const uint32_t split = std::max(
      {shape.tensor * shape.pipeline, shape.ranks_of_replica(), shape.expert ? shape.ranks : 1});
  const uint64_t each = folder.weight_bytes / split;
  for (const Node& node : nodes) {
    const uint64_t memory = node.topology.gpu_memory_bytes / kWholeGpu * row.gpu_percent;
    if (memory > 0 && each > memory && row.runs_on(node.name)) {
      warn(std::string(to_string(row.role)) + " of " + row.model + " needs at least " +
           gib_text(each) + " on each GPU for its weights, and node " + node.name + " has " +
           gib_text(memory) + ": it will run out of memory at its start");
      return;
    }
  }
}

// KV of one role must mean the same to the other.
void warn_of_unlike_roles(const ModelConfig& model, const engine::ModelFolder& folder,
                          const engine::EngineRecipe& recipe,
                          const std::function<void(const std::string&)>& warn) {
  const engine::ForeignConfig& prefill = model.prefill_engine.foreign;
  const engine::ForeignConfig& decode = model.decode_engine.foreign;
  for (const std::string& option : recipe.alike) {
    const auto p = engine::option_of(prefill.args, option);
    const auto d = engine::option_of(decode.args, option);
    if (p != d) {
      const auto text = [](const std::optional<std::string>& value) {
        return !value ? std::string("not set") : value->empty() ? "set" : *value;
      };
      warn(option + " is " + text(p) + " for prefill and " + text(d) +
           " for decode: " + recipe.name + " hands KV over only where both are alike");
    }
  }
  const engine::EngineShape p = engine::shape_of(prefill, model.prefill_engine.gpu);
  const engine::EngineShape d = engine::shape_of(decode, model.decode_engine.gpu);
  if (p.tensor % d.tensor != 0 && d.tensor % p.tensor != 0) {
    warn("the tensor-parallel sizes of prefill, " + std::to_string(p.tensor) + ", and decode, " +
         std::to_string(d.tensor) + ", must divide one another for KV to be handed over");
  } else if (p.tensor > d.tensor && !folder.latent && folder.kv_heads < p.tensor) {
    warn("prefill has tensor " + std::to_string(p.tensor) + " and decode " +
         std::to_string(d.tensor) + ": connectors take this only of models with at least " +
         std::to_string(p.tensor) + " KV heads, or with latent attention (MLA)" +
         (folder.kv_heads == 0 ? "" : "; this one has " + std::to_string(folder.kv_heads)));
  }
}

void warn_of_open_doors(const engine::EngineRecipe& recipe, Mode mode, const std::string& host,
                        const std::function<void(const std::string&)>& warn) {
  if (recipe.open.empty() && !recipe.key_environment.empty()) {
    return;
  }
  const std::string open =
      (recipe.open.empty() ? "every route" : list_of(recipe.open)) +
      (recipe.publishes ? ", its KV events, which have the tokens of prompts" : "") +
      (mode == Mode::kRollout && !recipe.open.empty() ? ", the calls that change its weights" : "");
  warn(recipe.name + " answers without a key: " + open + "; it listens on " + host);
}

}  // namespace

uint32_t ports_each(const JobConfig& config) {
  uint32_t most = 0;
  for (const ModelConfig& model : config.models) {
    for (const engine::EngineConfig* const engine : {&model.prefill_engine, &model.decode_engine}) {
      const bool foreign = engine->kind == engine::EngineKind::kForeign;
      most = std::max(most, foreign ? engine::ports_of_engine(engine->foreign) : 0);
    }
  }
  return most;
}

namespace {

class ForeignPlanner {
 public:
  ForeignPlanner(const JobConfig& config, LaunchPlan& plan) : config_(config), plan_(plan) {}

  // `ports_from`: as net::ProcessSpec has it.
  Status add(const ModelConfig& model, const engine::ModelFolder& folder, uint64_t ports_from,
             PlanRow& row) {
    const engine::EngineConfig& engine = engine_of(model, row.role);
    const engine::EngineRecipe recipe = engine::recipe_at(engine.foreign, row.host);
    PDJOB_TRY_STATUS(check_heads(engine, folder, row));
    const engine::EngineCommand command = add_commands(engine, recipe, ports_from, row);
    count_ports(engine.foreign, row);
    const auto warn = [this](const std::string& text) { this->warn(text); };
    for (const std::string& warning : command.warnings) {
      warn(warning);
    }
    if (engine.gpu_percent < kWholeGpu && recipe.gpu_part.args.empty()) {
      warn(recipe.name +
           " does not say how it keeps to a part of a GPU's memory (`gpu_part` of its "
           "recipe): bound it in engine.args, or it takes what is free");
    }
    warn_of_cpus(engine, engine::shape_of(engine.foreign, engine.gpu), row, warn);
    warn_of_files(engine, recipe, warn);
    warn_of_weights(engine, folder, row, plan_.nodes, warn);
    if (model.disaggregated()) {
      warn_of_unlike_roles(model, folder, recipe, warn);
    }
    warn_of_open_doors(recipe, config_.mode, command.words.at("host"), warn);
    return ok();
  }

  // A store that is a program of another make.
  void add_store(PlanRow& row) {
    engine::EngineConfig program;
    program.kind = engine::EngineKind::kForeign;
    program.foreign = store::program_of(config_.kv_store, row.name == store::kMaster);
    if (engine::serves_own_machine(store::kind_word(config_.kv_store.kind))) {
      row.host = store_of(row).host;
    }
    const engine::EngineRecipe recipe = engine::recipe_of(program.foreign);
    for (const std::string& warning : add_commands(program, recipe, 0, row).warnings) {
      warn(warning);
    }
    warn_of_open_doors(recipe, config_.mode, row.host, [this](const auto& text) { warn(text); });
  }

  void end() {
    for (const auto& [band, wanted] : ports_wanted_) {
      const size_t size = engine::PortBand{band.first, band.second}.size();
      if (wanted > size) {
        warn("engine.ports has " + std::to_string(size) + " ports, and the engines want " +
             std::to_string(wanted) + ": some will not start");
      }
    }
  }

 private:
  // Of all parts; returns that of the first.
  engine::EngineCommand add_commands(const engine::EngineConfig& engine,
                                     const engine::EngineRecipe& recipe, uint64_t ports_from,
                                     PlanRow& row) const {
    EnginePart part{.engine = engine,
                    .recipe = recipe,
                    .row = row,
                    .host = row.host,
                    .nics = row.near.nics_text(),
                    .ports_from = ports_from,
                    .changes_weights = config_.mode == Mode::kRollout,
                    .store = store_of(row)};
    engine::EngineCommand command = command_of(part, config_.kvtransfer.lease);
    row.command = engine::shell_text(command, recipe.key_environment);
    if (!command.store_file.empty()) {
      row.command += std::string("  # ") + kFileShown + ": " + command.store_file;
    }
    row.port = command.port();
    for (PlanPart& more : row.more) {
      part.number += 1;
      part.host = more.host;
      part.nics = more.near.nics_text();
      more.command =
          engine::shell_text(command_of(part, config_.kvtransfer.lease), recipe.key_environment);
    }
    return command;
  }

  // Returns what the program of this row is told of the stores of the job.
  engine::StoreUse store_of(const PlanRow& row) const {
    const ModelConfig* const model = config_.model_called(row.model);
    if (!config_.kv_store.is_foreign() ||
        (model != nullptr && !uses_store(config_, *model, row.role))) {
      return {};
    }
    const auto master = std::ranges::find(plan_.rows, store::kMaster, &PlanRow::name);
    return store::use_of(config_.kv_store, master == plan_.rows.end() ? "" : master->host);
  }

  void count_ports(const engine::ForeignConfig& config, const PlanRow& row) {
    if (engines_at_[{row.node, row.port}]++ == 1) {
      warn("port " + std::to_string(row.port) + " is for several engines of node " + row.node +
           ", by their arguments: only one of them will start");
    }
    ports_wanted_[{config.ports.first, config.ports.last}] += engine::ports_of_engine(config);
  }

  // Each once.
  void warn(const std::string& text) {
    if (warned_.insert(text).second) {
      plan_.warnings.push_back(text);
    }
  }

  const JobConfig& config_;
  LaunchPlan& plan_;
  std::set<std::string> warned_;
  std::map<std::pair<uint16_t, uint16_t>, size_t> ports_wanted_;   // By band.
  std::map<std::pair<std::string, uint16_t>, size_t> engines_at_;  // By node and port.
};

// Beside the routers, before the first store.
void add_master(const JobConfig& config, LaunchPlan& plan) {
  const auto store = std::ranges::find(plan.rows, net::Role::kStore, &PlanRow::role);
  const auto head = std::ranges::find(plan.nodes, plan.rows.front().node, &Node::name);
  if (config.kv_store.has_master() && store != plan.rows.end() && head != plan.nodes.end()) {
    plan.rows.insert(store, {.name = store::kMaster,
                             .role = net::Role::kStore,
                             .node = head->name,
                             .cluster = head->cluster,
                             .why = "all stores ask it",
                             .host = head->host});
  }
}

}  // namespace

Status plan_foreign_engines(const JobConfig& config, const std::vector<ModelSize>& sizes,
                            LaunchPlan& plan) {
  ForeignPlanner planner(config, plan);
  const uint32_t each = ports_each(config);
  uint64_t ports_from = 0;
  add_master(config, plan);
  for (PlanRow& row : plan.rows) {
    if (row.role == net::Role::kStore && config.kv_store.is_foreign()) {
      planner.add_store(row);
    }
    const ModelConfig* const model = config.model_called(row.model);
    if (model == nullptr) {
      continue;
    }
    const uint64_t from = std::exchange(ports_from, ports_from + each);
    if (engine_of(*model, row.role).kind == engine::EngineKind::kForeign) {
      const auto number = static_cast<size_t>(model - config.models.data());
      PDJOB_TRY_STATUS(planner.add(*model, sizes.at(number).folder, from, row));
    }
  }
  planner.end();
  return ok();
}

}  // namespace pdjob::launcher
