#include "launcher/job_plan.h"

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <set>
#include <system_error>
#include <utility>

#include "batch/config/batch_config.h"
#include "batch/stages/stage_command.h"
#include "common/exit_code.h"
#include "engine/kv_size.h"
#include "kvtransfer/nccl/nccl_device.h"
#include "launcher/clusters/local_cluster.h"
#include "launcher/placement/assumed_nodes.h"
#include "router/external/external_process.h"
#include "worker/foreign/engine_place.h"

namespace pdjob::launcher {

namespace {

ModelSize size_of(const ModelConfig& model) {
  const engine::EngineConfig& engine = model.decode_engine;
  if (engine.kind == engine::EngineKind::kForeign) {
    return {.folder = engine::read_model_folder(engine.model_path)};
  }
  std::error_code error;
  const auto bytes = std::filesystem::file_size(engine.model_path, error);
  if (error) {
    return {};
  }
  ModelSize size{.file_bytes = bytes};
  if (engine.kind == engine::EngineKind::kLlama) {
    const auto row = engine::kv_bytes_per_token(engine.model_path, engine.kv_type);
    size.kv_bytes_per_token = row ? *row : 0;
  }
  return size;
}

std::vector<ModelSize> model_sizes(const JobConfig& config) {
  std::vector<ModelSize> sizes;
  for (const ModelConfig& model : config.models) {
    sizes.push_back(size_of(model));
  }
  return sizes;
}

// Says which programs of engines of other makes are missing here.
void look_for_engines(const JobConfig& config, LaunchPlan& plan) {
  std::set<std::string> told;
  for (const ModelConfig& model : config.models) {
    for (const engine::EngineConfig* engine : {&model.prefill_engine, &model.decode_engine}) {
      if (engine->kind != engine::EngineKind::kForeign) {
        continue;
      }
      const auto found = worker::find_engine_program(engine->foreign, "engine.program");
      if (!found && told.insert(found.error().message).second) {
        plan.warnings.push_back("no " + engine->foreign.make +
                                " will start: " + found.error().message);
      }
    }
  }
  if (config.kv_store.is_foreign()) {
    const auto found =
        worker::find_engine_program(store::program_of(config.kv_store, false), "kv_store.programs");
    if (!found) {
      plan.warnings.push_back("no store will start: " + found.error().message);
    }
  }
}

// Only the launcher's own machine takes more than it has.
bool is_here(const JobConfig& config, const Node& node) {
  return std::ranges::any_of(config.clusters, [&](const ClusterConfig& cluster) {
    return cluster.kind == ClusterKind::kLocal && cluster.name == node.cluster;
  });
}

// The cluster of a node that names none: the only one that it can be.
Status give_cluster(const JobConfig& config, Node& node) {
  if (config.clusters.empty()) {
    node.cluster = node.cluster.empty() ? Node{}.cluster : node.cluster;
    return ok();
  }
  std::vector<std::string> remote;
  for (const ClusterConfig& cluster : config.clusters) {
    if (cluster.name == node.cluster) {
      return ok();
    }
    if (cluster.kind != ClusterKind::kLocal) {
      remote.push_back(cluster.name);
    }
  }
  if (!node.cluster.empty()) {
    return Error{ErrorCode::kInvalidArgument,
                 "node " + node.name + ": the job has no cluster " + node.cluster};
  }
  if (remote.size() != 1) {
    return Error{ErrorCode::kInvalidArgument,
                 "node " + node.name + ": name its cluster, because the job has several"};
  }
  node.cluster = remote.front();
  return ok();
}

Status look_for_nccl(const kvtransfer::NcclConfig& config, PlanProbe probe) {
  if (probe == PlanProbe::kYes) {
    return kvtransfer::nccl_is_there(config);
  }
  const bool is_path = config.library.find('/') != std::string::npos;
  std::error_code ignored;
  return !is_path || std::filesystem::is_regular_file(config.library, ignored)
             ? ok()
             : Status(Error{ErrorCode::kUnsupported,
                            "kvtransfer.transport is nccl, but there is no " + config.library});
}

}  // namespace

bool has_foreign_router(const JobConfig& config) {
  return config.router.kind == router::RouterKind::kCommand;
}

bool recipe_without_key(const JobConfig& config) {
  if (!has_foreign_router(config)) {
    return false;
  }
  const auto recipe = router::find_recipe(config.router.recipe);
  return !recipe || recipe->key_environment.empty() || !config.models.front().disaggregated();
}

Result<LaunchPlan> plan_on(const JobConfig& config, const std::vector<Node>& nodes, PlanProbe probe,
                           NodesOfPlan which) {
  PDJOB_TRY(LaunchPlan plan, make_plan(config, nodes, model_sizes(config), which));
  if (config.kvtransfer.transport == kvtransfer::TransportKind::kNccl) {
    if (const Status there = look_for_nccl(config.kvtransfer.nccl, probe); !there) {
      plan.warnings.push_back(there.error().message + ": no worker will start");
    }
  }
  look_for_engines(config, plan);
  if (plan.batch) {
    if (const auto files = batch::files_of(plan.batch->inputs); !files) {
      plan.warnings.push_back("the batch will not start: " + files.error().message);
    }
    const Status stages =
        batch::check_stages(plan.batch->stages, batch::stages_folder(config.source));
    if (!stages) {
      plan.warnings.push_back("the batch will not start: " + stages.error().message);
    }
  }
  if (has_foreign_router(config)) {
    PDJOB_TRY(const router::RouterRecipe recipe, router::find_recipe(config.router.recipe));
    const auto program =
        router::find_router_program(config.router, recipe, !config.models.front().disaggregated());
    if (!program) {
      plan.warnings.push_back("the router will not start: " + program.error().message);
    }
    if (recipe_without_key(config)) {
      plan.warnings.push_back("worker ports are open to whoever reaches them: " + recipe.name +
                              " cannot show a key to workers");
    }
  }
  return plan;
}

NodeWaiting node_waiting(const JobConfig& config,
                         std::function<void(const std::string&)> progress) {
  return {.fits =
              [&config](const std::vector<Node>& nodes) {
                const auto plan = make_plan(config, nodes, model_sizes(config));
                return plan ? ok() : Status(plan.error());
              },
          .progress = std::move(progress)};
}

int exit_code_of(const Error& error) {
  switch (error.code) {
    case ErrorCode::kCancelled:
      return kExitInterrupted;
    case ErrorCode::kInvalidArgument:
      return kExitUsage;
    default:
      return kExitNotPlaced;
  }
}

int refuse_job(int exit_code, const Error& error) {
  std::fprintf(stderr, "pdjob: %s\n", error.message.c_str());
  return exit_code;
}

Node node_here(const JobConfig& config) {
  const auto here = local_node(config);
  return here ? *here : LocalCluster::this_node();
}

Result<std::vector<Node>> nodes_assumed(const JobConfig& config, const std::string& source,
                                        const std::string& text) {
  PDJOB_TRY(std::vector<Node> nodes, parse_assumed_nodes(source, text));
  if (config.clusters.empty() && nodes.size() > 1) {
    return Error{ErrorCode::kInvalidArgument,
                 source + " has " + std::to_string(nodes.size()) +
                     " nodes, and a job without `clusters` runs on one machine\n"};
  }
  bool has_here = config.clusters.empty();
  for (Node& node : nodes) {
    if (const Status given = give_cluster(config, node); !given) {
      return Error{given.error().code, source + ": " + given.error().message + "\n"};
    }
    node.overcommits = config.clusters.empty() || is_here(config, node);
    has_here = has_here || node.overcommits;
  }
  if (!has_here) {
    nodes.insert(nodes.begin(), node_here(config));
  }
  return nodes;
}

std::vector<std::string> unknown_models(const JobConfig& config) {
  std::vector<std::string> names;
  for (const ModelConfig& model : config.models) {
    if (model.decode_engine.kind == engine::EngineKind::kLlama && size_of(model).file_bytes == 0) {
      names.push_back(model.served_name);
    }
  }
  return names;
}

}  // namespace pdjob::launcher
