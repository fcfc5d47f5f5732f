#include "launcher/plan/gpu_shares.h"

#include <algorithm>
#include <cstdlib>
#include <string>
#include <string_view>

#include "launcher/placement/node_share.h"

namespace pdjob::launcher {
namespace {

bool names_gpu(std::string_view word) {
  return word.starts_with("GPU-") || word.starts_with("MIG-") ||
         (!word.empty() && word.front() >= '0' && word.front() <= '9');
}

// NCCL's own switch, which workers inherit.
bool nccl_shares_gpus() {
  const char* const enabled = std::getenv("NCCL_MULTI_RANK_GPU_ENABLE");
  return enabled != nullptr && std::string_view(enabled) == "1";
}

}  // namespace

uint32_t gpus_wanted(const JobConfig& config, const ModelConfig& model, net::Role role) {
  const engine::EngineConfig& engine = model.engine_of(role);
  const bool computes = engine.gpu || engine.gpu_layers > 0 ||
                        config.kvtransfer.transport == kvtransfer::TransportKind::kNccl;
  return std::max<uint32_t>(shape_of(engine).gpus_per_node(), computes ? 1 : 0);
}

uint32_t gpus_to_place(uint32_t wanted, const Demand& demand, const std::vector<Node>& nodes) {
  const auto accepted = [&](const Node& node) { return refusals(node, demand).empty(); };
  const bool there = std::ranges::any_of(
      nodes, [&](const Node& node) { return accepted(node) && node.gpus.size() >= wanted; });
  const bool tried = std::ranges::any_of(
      nodes, [&](const Node& node) { return accepted(node) && node.overcommits; });
  return !there && tried ? 0 : wanted;
}

Near near_of(const ModelConfig& model, const engine::EngineConfig& engine) {
  if (!engine.near || engine::names_gpus(engine.foreign)) {
    return Near::kNothing;
  }
  const bool all_on_gpus = model.prefill_engine.gpu && model.decode_engine.gpu;
  return all_on_gpus || !model.disaggregated() ? Near::kAll : Near::kCores;
}

engine::EngineShape shape_of(const engine::EngineConfig& engine) {
  return engine.kind == engine::EngineKind::kForeign ? engine::shape_of(engine.foreign, engine.gpu)
                                                     : engine::EngineShape{};
}

std::vector<std::string> gpus_of_setting(std::string_view cuda_visible_devices) {
  std::vector<std::string> gpus;
  while (!cuda_visible_devices.empty()) {
    const size_t comma = std::min(cuda_visible_devices.find(','), cuda_visible_devices.size());
    const std::string_view word = cuda_visible_devices.substr(0, comma);
    if (!names_gpu(word)) {
      break;
    }
    gpus.emplace_back(word);
    cuda_visible_devices.remove_prefix(std::min(comma + 1, cuda_visible_devices.size()));
  }
  return gpus;
}

std::string gpus_text(const std::vector<std::string>& gpus) {
  std::string text;
  for (const std::string& gpu : gpus) {
    text += (text.empty() ? "" : ",") + gpu;
  }
  return text;
}

Status check_gpus(const JobConfig& config, const std::vector<Node>& nodes, LaunchPlan& plan) {
  for (const Node& node : nodes) {
    size_t workers = 0;
    size_t wanted = 0;
    size_t largest = 0;
    for (const PlanRow& row : plan.rows) {
      const ModelConfig* const model = config.model_called(row.model);  // Null: a router.
      const bool here = model != nullptr && row.runs_on(node.name);
      const uint32_t gpus = here ? gpus_wanted(config, *model, row.role) : 0;
      workers += gpus > 0 ? 1 : 0;
      wanted += gpus;
      largest = std::max<size_t>(largest, gpus);
    }
    if (wanted <= node.gpus.size()) {
      continue;
    }
    const std::string shortage =
        "node " + node.name + " has " +
        (node.gpus.empty() ? "no GPU" : count_text(node.gpus.size(), "GPU")) + " for " +
        count_text(workers, "worker") +
        (wanted > workers ? (workers == 1 ? " that wants " : " that want ") + std::to_string(wanted)
                          : "");
    if (node.gpus.empty()) {
      plan.warnings.push_back(shortage +
                              ": look at nvidia-smi, /dev/nvidia* and CUDA_VISIBLE_DEVICES");
    } else if (largest > node.gpus.size()) {
      plan.warnings.push_back(shortage +
                              ": an engine with fewer GPUs than ranks does not start, so lower "
                              "engine.parallel, or add machines in `clusters`");
    } else if (config.kvtransfer.transport == kvtransfer::TransportKind::kNccl &&
               !nccl_shares_gpus()) {
      return Error{ErrorCode::kUnavailable,
                   shortage +
                       ", and NCCL takes one for each: have fewer workers, take another "
                       "kvtransfer.transport, or set NCCL_MULTI_RANK_GPU_ENABLE=1 in the "
                       "environment (experimental, NCCL 2.30 and newer)"};
    } else {
      plan.warnings.push_back(shortage + ": expect them to share its memory and time");
    }
  }
  return ok();
}

}  // namespace pdjob::launcher
