// The GPUs and nodes of a recipe's engines: how many one engine takes, and how many engines the
// nodes hold. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common/result.h"
#include "launcher/convert/hardware.h"
#include "launcher/plan/vllm_options.h"

namespace pdjob::launcher {

enum class PoolMode {
  kTensor,        // "tp": all GPUs of the engine hold a part of each layer.
  kTensorExpert,  // "tep": the same, and experts are spread over them.
  kDataExpert,    // "dep": each GPU computes requests of its own, and experts are spread.
};

// What a recipe says about the engines of one role.
struct EngineWish {
  PoolMode mode = PoolMode::kTensor;
  VllmSizes sizes;         // As far as the recipe names them.
  uint32_t nodes = 1;      // At least.
  uint32_t gpus_min = 0;   // At least.
  uint64_t memory_gb = 0;  // That all GPUs of one engine must have together.
};

struct FittedEngine {
  uint32_t nodes = 1;  // Of one engine.
  uint32_t gpus = 1;   // Of one engine, on all its nodes.
  VllmSizes sizes;
  std::vector<std::string> notes;  // What is not as the recipe says.
};

// `gpus`: those of a node that this role may use. kInvalidArgument: the sizes contradict each
// other.
Result<FittedEngine> fitted_engine(const Hardware& hardware, uint32_t gpus, const EngineWish& wish);

struct Layout {
  uint32_t nodes = 0;  // That the job uses.
  FittedEngine prefill;
  FittedEngine decode;
  uint32_t prefill_workers = 1;
  uint32_t decode_workers = 1;
};

// `nodes`: of the whole job; nothing: as few as possible. On one node the roles share its GPUs.
// kInvalidArgument: they do not fit; the message has the numbers.
Result<Layout> layout_of(const Hardware& hardware, std::optional<uint32_t> nodes,
                         const EngineWish& prefill, const EngineWish& decode);

}  // namespace pdjob::launcher
