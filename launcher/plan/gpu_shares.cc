#include "launcher/plan/gpu_shares.h"

#include <algorithm>
#include <cstdlib>
#include <map>
#include <string>
#include <string_view>
#include <utility>

#include "common/config/config_text.h"
#include "launcher/placement/node_share.h"

namespace pdjob::launcher {
namespace {

bool names_gpu(std::string_view word) {
  return word.starts_with("GPU-") || word.starts_with("MIG-") ||
         (!word.empty() && word.front() >= '0' && word.front() <= '9');
}

// By node and name.
using RowsOfGpus = std::map<std::pair<std::string, std::string>, std::vector<const PlanRow*>>;

RowsOfGpus rows_of_gpus(const LaunchPlan& plan) {
  RowsOfGpus rows;
  for (const PlanRow& row : plan.rows) {
    for (const PlacePart& part : row.place().parts()) {
      for (const std::string& gpu : part.gpus) {
        rows[{part.node, gpu}].push_back(&row);
      }
    }
  }
  return rows;
}

constexpr const char* kHaveNcclShare =
    "have fewer workers, take another kvtransfer.transport, or set NCCL_MULTI_RANK_GPU_ENABLE=1 in "
    "the environment (experimental, NCCL 2.30 and newer)";

// Nobody shares a GPU by parts with NCCL.
Status check_parts(const LaunchPlan& plan) {
  for (const auto& [gpu, rows] : rows_of_gpus(plan)) {
    if (rows.size() > 1 && rows.front()->gpu_percent < kWholeGpu) {
      return Error{ErrorCode::kUnavailable, rows[0]->name + " and " + rows[1]->name +
                                                " have parts of GPU " + gpu.second + " of node " +
                                                gpu.first +
                                                ", and NCCL takes one for each: " + kHaveNcclShare};
    }
  }
  return ok();
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

std::string all_gpus_text(const PlanRow& row) {
  std::string text = gpus_text(row.gpus);
  for (const PlanPart& part : row.more) {
    text += " + " + gpus_text(part.gpus);
  }
  const bool part = !row.gpus.empty() && row.gpu_percent < kWholeGpu;
  return part ? text + " (" + portion_text(row.gpu_percent) + ")" : text;
}

std::string gpu_parts_text(const LaunchPlan& plan) {
  std::string slices;
  std::string parts;
  for (const auto& [gpu, rows] : rows_of_gpus(plan)) {
    const std::string name = "GPU " + gpu.second + " of node " + gpu.first;
    if (gpu.second.starts_with("MIG-")) {
      slices += name + " is a slice: its memory, multiprocessors and faults are its own\n";
    }
    const bool shared =
        std::ranges::any_of(rows, [](const PlanRow* row) { return row->gpu_percent < kWholeGpu; });
    parts += shared ? name + ":" : "";
    for (const PlanRow* const row : shared ? rows : std::vector<const PlanRow*>()) {
      parts +=
          (row == rows.front() ? " " : ", ") + row->name + " has " + portion_text(row->gpu_percent);
    }
    parts += shared ? "\n" : "";
  }
  parts += parts.empty() ? ""
                         : "parts of a GPU: each engine keeps to its part of the memory by itself. "
                           "They take turns computing, or have their parts of the multiprocessors "
                           "where NVIDIA's MPS runs. A fault of one can end the others "
                           "(docs/how-to/gpus.md#share-a-gpu)\n";
  return slices + parts;
}

Status check_gpus(const JobConfig& config, const std::vector<Node>& nodes, LaunchPlan& plan) {
  const bool nccl_takes_whole =
      config.kvtransfer.transport == kvtransfer::TransportKind::kNccl && !nccl_shares_gpus();
  if (nccl_takes_whole) {
    PDJOB_TRY_STATUS(check_parts(plan));
  }
  for (const Node& node : nodes) {
    size_t workers = 0;
    size_t percent = 0;
    size_t largest = 0;
    for (const PlanRow& row : plan.rows) {
      const ModelConfig* const model = config.model_called(row.model);  // Null: a router.
      const bool here = model != nullptr && row.runs_on(node.name);
      const uint32_t gpus = here ? gpus_wanted(config, *model, row.role) : 0;
      workers += gpus > 0 ? 1 : 0;
      percent += here ? size_t{gpus} * model->engine_of(row.role).gpu_percent : 0;
      largest = std::max<size_t>(largest, gpus);
    }
    const size_t wanted = (percent + kWholeGpu - 1) / kWholeGpu;
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
    } else if (nccl_takes_whole) {
      return Error{ErrorCode::kUnavailable,
                   shortage + ", and NCCL takes one for each: " + kHaveNcclShare};
    } else {
      plan.warnings.push_back(shortage + ": expect them to share its memory and time");
    }
  }
  return ok();
}

}  // namespace pdjob::launcher
