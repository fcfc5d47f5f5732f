#include "launcher/job_plan.h"

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <set>
#include <system_error>
#include <utility>

#include "common/exit_code.h"
#include "engine/kv_size.h"
#include "kvtransfer/nccl/nccl_device.h"
#include "net/loop/event_loop.h"
#include "net/loop/signals.h"
#include "router/external/external_process.h"
#include "worker/foreign/engine_process.h"

namespace pdjob::launcher {

namespace {

ModelSize size_of(const ModelConfig& model) {
  const engine::EngineConfig& engine = model.decode_engine;
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
      const auto found = worker::find_engine_program(engine->foreign);
      if (!found && told.insert(found.error().message).second) {
        plan.warnings.push_back("no " + engine->foreign.make +
                                " will start: " + found.error().message);
      }
    }
  }
}

// Opening a library runs code of it.
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

// Says what would keep the job from starting now: the router's port in use.
void look_at_port(LaunchPlan& plan) {
  const PlanRow& router = plan.rows.front();
  if (const auto socket = net::listen_on(router.host, router.port); !socket) {
    plan.warnings.push_back("the job cannot start now: " + socket.error().message);
  }
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

Result<LaunchPlan> plan_on(const JobConfig& config, const std::vector<Node>& nodes,
                           PlanProbe probe) {
  PDJOB_TRY(LaunchPlan plan, make_plan(config, nodes, model_sizes(config)));
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

int refuse(int exit_code, const Error& error) {
  std::fprintf(stderr, "pdjob: %s\n", error.message.c_str());
  return exit_code;
}

int show_plan(const JobConfig& config, PlanForm form, PlanProbe probe) {
  const auto ray = std::ranges::find(config.clusters, ClusterKind::kRay, &ClusterConfig::kind);
  if (ray != config.clusters.end() && probe == PlanProbe::kNo) {
    return refuse(
        kExitUsage,
        {ErrorCode::kInvalidArgument,
         "cluster " + ray->name +
             " is of kind ray: what its nodes have is known only by "
             "running its Python, which takes them for a moment. `pdjob plan --probe` does"});
  }
  net::block_signals();
  net::EventLoop loop;
  const auto nodes = nodes_for_plan(loop, config, node_waiting(config, [](const std::string& text) {
                                      std::fprintf(stderr, "%s\n", text.c_str());
                                    }));
  if (!nodes) {
    return refuse(exit_code_of(nodes.error()), nodes.error());
  }
  Result<LaunchPlan> plan = plan_on(config, *nodes, probe);
  if (!plan) {
    return refuse(kExitNotPlaced, plan.error());
  }
  look_at_port(*plan);
  std::fputs((form == PlanForm::kJson ? plan->to_json() : plan->to_text()).c_str(), stdout);
  return kExitOk;
}

}  // namespace pdjob::launcher
