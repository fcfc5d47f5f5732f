#include "launcher/convert/recipe_layout.h"

#include <algorithm>
#include <utility>

namespace pdjob::launcher {
namespace {

constexpr uint64_t kEngineGpusMax = 1U << 16;

std::string gpus_text(const Hardware& hardware, uint64_t gpus) {
  return std::to_string(gpus) + " GPUs of " + std::string(hardware.name) + " (" +
         std::to_string(gpus * hardware.gpu_gb) + " GB)";
}

Error impossible(std::string message) {
  return Error{ErrorCode::kInvalidArgument, std::move(message)};
}

uint32_t divide_up(uint64_t amount, uint64_t part) {
  return static_cast<uint32_t>((amount + part - 1) / part);
}

// True if the recipe's sizes say how many GPUs an engine has.
bool names_gpus(const EngineWish& wish) {
  return wish.mode == PoolMode::kDataExpert ? wish.sizes.data.has_value()
                                            : wish.sizes.tensor.has_value();
}

// The sizes that use all GPUs of the nodes.
Status spread(const EngineWish& wish, uint32_t nodes, uint32_t gpus, VllmSizes& sizes) {
  if (wish.mode != PoolMode::kDataExpert) {
    sizes.tensor.reset();
    const uint64_t rest = sizes.gpus();
    const uint64_t all = uint64_t{nodes} * gpus;
    if (all % rest != 0) {
      return impossible("its other parallel sizes take " + std::to_string(rest) +
                        " GPUs, and the " + std::to_string(all) +
                        " GPUs of its nodes are no multiple of that");
    }
    sizes.tensor = static_cast<uint32_t>(all / rest);
    return Done{};
  }
  sizes.data.reset();
  const uint64_t rank = sizes.gpus();
  if (gpus % rank != 0) {
    return impossible("one of its data-parallel ranks takes " + std::to_string(rank) +
                      " GPUs, and the " + std::to_string(gpus) +
                      " GPUs of a node are no multiple of that");
  }
  sizes.data = static_cast<uint32_t>(nodes * (gpus / rank));
  return Done{};
}

void note_odd_tensor(FittedEngine& shape) {
  const uint32_t tensor = shape.sizes.tensor.value_or(1);
  if ((tensor & (tensor - 1)) != 0) {
    shape.notes.push_back("takes tensor parallelism of " + std::to_string(tensor) +
                          ": vLLM refuses it unless that divides the model's attention heads");
  }
}

// The workers of the nodes that are left, one block of nodes after another, for the role with fewer
// workers.
void share_rest(const Hardware& hardware, uint32_t rest, Layout& layout) {
  const auto engines_of = [&](const FittedEngine& shape) {
    return shape.nodes > 1 ? 1 : hardware.gpus / shape.gpus;
  };
  layout.prefill_workers = engines_of(layout.prefill);
  layout.decode_workers = engines_of(layout.decode);
  while (rest >= std::min(layout.prefill.nodes, layout.decode.nodes)) {
    const bool fewer_decode = layout.decode_workers <= layout.prefill_workers;
    const bool decode = fewer_decode ? rest >= layout.decode.nodes : rest < layout.prefill.nodes;
    const FittedEngine& shape = decode ? layout.decode : layout.prefill;
    (decode ? layout.decode_workers : layout.prefill_workers) += engines_of(shape);
    rest -= shape.nodes;
    layout.nodes += shape.nodes;
  }
}

// Nothing: the two roles do not fit on one node.
std::optional<Layout> on_one_node(const Hardware& hardware, const EngineWish& prefill,
                                  const EngineWish& decode) {
  const uint32_t half = hardware.gpus / 2;
  auto first = fitted_engine(hardware, half, prefill);
  auto second = fitted_engine(hardware, half, decode);
  if (!first || !second || first->nodes > 1 || second->nodes > 1 || first->gpus > half ||
      second->gpus > half) {
    return std::nullopt;
  }
  return Layout{.nodes = 1,
                .prefill = *first,
                .decode = *second,
                .prefill_workers = half / first->gpus,
                .decode_workers = half / second->gpus};
}

std::string need_text(const Hardware& hardware, const FittedEngine& shape, const EngineWish& wish) {
  return std::to_string(shape.nodes) + (shape.nodes == 1 ? " node" : " nodes") + " for " +
         gpus_text(hardware, shape.gpus) + ", where the model needs " +
         std::to_string(wish.memory_gb) + " GB";
}

}  // namespace

Result<FittedEngine> fitted_engine(const Hardware& hardware, uint32_t gpus,
                                   const EngineWish& wish) {
  FittedEngine shape{.sizes = wish.sizes};
  const uint64_t needed = std::max<uint64_t>(1, divide_up(wish.memory_gb, hardware.gpu_gb));
  const uint64_t named = wish.sizes.gpus();
  if (names_gpus(wish) && named >= needed && named >= wish.gpus_min && named <= kEngineGpusMax) {
    shape.gpus = static_cast<uint32_t>(named);
    shape.nodes = divide_up(named, gpus);
  } else {
    if (names_gpus(wish)) {
      shape.notes.push_back("would have " + gpus_text(hardware, named) +
                            " by the recipe's sizes, and needs " +
                            gpus_text(hardware, std::max<uint64_t>(needed, wish.gpus_min)) +
                            ": it gets all GPUs of its nodes");
    }
    shape.nodes = std::max({wish.nodes, divide_up(needed, gpus), divide_up(wish.gpus_min, gpus)});
    PDJOB_TRY_STATUS(spread(wish, shape.nodes, gpus, shape.sizes));
    shape.gpus = shape.nodes * gpus;
    note_odd_tensor(shape);
  }
  if (shape.gpus % shape.nodes != 0 || (shape.nodes > 1 && shape.gpus / shape.nodes != gpus)) {
    return impossible("takes " + std::to_string(shape.gpus) + " GPUs, and nodes have " +
                      std::to_string(gpus) + " each");
  }
  shape.sizes.nodes = shape.nodes;
  return shape;
}

Result<Layout> layout_of(const Hardware& hardware, std::optional<uint32_t> nodes,
                         const EngineWish& prefill, const EngineWish& decode) {
  if (nodes.value_or(1) == 1) {
    if (auto shared = on_one_node(hardware, prefill, decode)) {
      return *shared;
    }
  }
  Layout layout;
  auto first = fitted_engine(hardware, hardware.gpus, prefill);
  if (!first) {
    return impossible("prefill: " + first.error().message);
  }
  auto second = fitted_engine(hardware, hardware.gpus, decode);
  if (!second) {
    return impossible("decode: " + second.error().message);
  }
  layout.prefill = *first;
  layout.decode = *second;
  layout.nodes = first->nodes + second->nodes;
  if (nodes.value_or(layout.nodes) < layout.nodes) {
    return impossible("--nodes is " + std::to_string(*nodes) + ", and the job needs at least " +
                      std::to_string(layout.nodes) + ": one engine of prefill takes " +
                      need_text(hardware, *first, prefill) + "; one of decode takes " +
                      need_text(hardware, *second, decode));
  }
  share_rest(hardware, nodes.value_or(layout.nodes) - layout.nodes, layout);
  return layout;
}

}  // namespace pdjob::launcher
