#include "launcher/pool/room.h"

#include <algorithm>
#include <functional>
#include <string>
#include <utility>

namespace pdjob::launcher {

namespace {

template <class Number>
Number less(Number has, Number taken) {
  return has - std::min(has, taken);
}

// Each GPU, or part of one, takes the place of the node's fullest one that has room for it.
std::optional<Share> moved_to(const Node& node, const Share& share) {
  std::vector<uint32_t> percents;
  for (const std::string& gpu : share.gpus) {
    percents.push_back(percent_of(share.gpu_parts, gpu));
  }
  std::ranges::sort(percents, std::greater());
  Share moved = share;
  moved.node = node.name;
  moved.gpus.clear();
  moved.gpu_parts.clear();
  std::vector<std::string> left = node.gpus;
  for (const uint32_t percent : percents) {
    auto fullest = left.end();
    for (auto gpu = left.begin(); gpu != left.end(); ++gpu) {
      if (percent_of(node.gpu_parts, *gpu) >= percent &&
          (fullest == left.end() ||
           percent_of(node.gpu_parts, *gpu) < percent_of(node.gpu_parts, *fullest))) {
        fullest = gpu;
      }
    }
    if (fullest == left.end()) {
      return std::nullopt;
    }
    moved.gpus.push_back(*fullest);
    if (percent < kWholeGpu) {
      moved.gpu_parts[*fullest] = percent;
    }
    left.erase(fullest);
  }
  return moved;
}

}  // namespace

void take_from(std::vector<Node>& nodes, const Share& share) {
  const auto node = std::ranges::find(nodes, share.node, &Node::name);
  if (node == nodes.end()) {
    return;
  }
  node->cores = less(node->cores, share.cores);
  node->memory_bytes = less(node->memory_bytes, share.memory_bytes);
  for (const std::string& gpu : share.gpus) {
    if (std::ranges::find(node->gpus, gpu) == node->gpus.end()) {
      continue;
    }
    const uint32_t left = less(percent_of(node->gpu_parts, gpu), percent_of(share.gpu_parts, gpu));
    if (left > 0) {
      node->gpu_parts[gpu] = left;
    } else {
      node->gpu_parts.erase(gpu);
      std::erase(node->gpus, gpu);
      // All else in it speaks of all GPUs.
      node->topology = {.gpu_memory_bytes = node->topology.gpu_memory_bytes};
    }
  }
}

std::optional<Share> place_of(const std::vector<Node>& nodes, const Share& share) {
  std::optional<Share> best;
  uint32_t fewest = 0;
  for (const Node& node : nodes) {
    if (node.cores < share.cores || node.memory_bytes < share.memory_bytes ||
        node.labels != share.labels || (best && node.cores >= fewest)) {
      continue;
    }
    if (auto moved = moved_to(node, share)) {
      best = std::move(moved);
      fewest = node.cores;
    }
  }
  return best;
}

}  // namespace pdjob::launcher
