// Finds the workers that want a GPU, and checks that their nodes have enough. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "common/result.h"
#include "launcher/placement/node.h"
#include "launcher/plan/job_config.h"
#include "launcher/plan/launch_plan.h"

namespace pdjob::launcher {

// Names the only GPUs that a process sees.
inline constexpr const char* kVisibleGpus = "CUDA_VISIBLE_DEVICES";

// The percent of a GPU's multiprocessors that a process may use. Without effect unless NVIDIA's
// Multi-Process Service runs.
inline constexpr const char* kMpsThreads = "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE";

// The words of CUDA_VISIBLE_DEVICES up to the first invalid one, which hides the rest, as in CUDA.
std::vector<std::string> gpus_of_setting(std::string_view cuda_visible_devices);

// The same words, of some GPUs.
std::string gpus_text(const std::vector<std::string>& gpus);

// "0,1" of one node, "0,1 + 0,1" of two; "0 (0.5)" for half of one.
std::string all_gpus_text(const PlanRow& row);

// Lines that say who has which part of a GPU, and what keeps them apart; empty: nobody has a part.
std::string gpu_parts_text(const LaunchPlan& plan);

// How the engine is spread; one of pdjob's own is one rank.
engine::EngineShape shape_of(const engine::EngineConfig& engine);

// GPUs that a worker of this role wants for itself, on each of its nodes.
uint32_t gpus_wanted(const JobConfig& config, const ModelConfig& model, net::Role role);
// How many of them its place needs. A job can be tried on a machine without GPUs: check_gpus()
// warns.
uint32_t gpus_to_place(uint32_t wanted, const Demand& demand, const std::vector<Node>& nodes);
// What of such a worker should be near each other. KV that goes over NICs alone reaches no engine
// on CPUs.
Near near_of(const ModelConfig& model, const engine::EngineConfig& engine);

// Warns if workers share a GPU or a node has none, where that is allowed. kUnavailable: workers
// would share one, which NCCL refuses unless NCCL_MULTI_RANK_GPU_ENABLE=1 is in the environment.
Status check_gpus(const JobConfig& config, const std::vector<Node>& nodes, LaunchPlan& plan);

}  // namespace pdjob::launcher
