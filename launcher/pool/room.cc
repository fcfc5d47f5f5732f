#include "launcher/pool/room.h"

#include <algorithm>
#include <string>

namespace pdjob::launcher {

namespace {

template <class Number>
Number less(Number has, Number taken) {
  return has - std::min(has, taken);
}

}  // namespace

void take_from(std::vector<Node>& nodes, const Share& share) {
  const auto node = std::ranges::find(nodes, share.node, &Node::name);
  if (node == nodes.end()) {
    return;
  }
  node->cores = less(node->cores, share.cores);
  node->memory_bytes = less(node->memory_bytes, share.memory_bytes);
  if (!share.gpus.empty()) {
    std::erase_if(node->gpus, [&](const std::string& gpu) {
      return std::ranges::find(share.gpus, gpu) != share.gpus.end();
    });
    node->topology = {};  // It speaks of all GPUs.
  }
}

std::optional<Share> place_of(const std::vector<Node>& nodes, const Share& share) {
  const Node* best = nullptr;
  for (const Node& node : nodes) {
    if (node.cores >= share.cores && node.memory_bytes >= share.memory_bytes &&
        node.gpus.size() >= share.gpus.size() && node.labels == share.labels &&
        (best == nullptr || node.cores < best->cores)) {
      best = &node;
    }
  }
  if (best == nullptr) {
    return std::nullopt;
  }
  Share moved = share;
  moved.node = best->name;
  moved.gpus.assign(best->gpus.begin(),
                    best->gpus.begin() + static_cast<std::ptrdiff_t>(share.gpus.size()));
  return moved;
}

}  // namespace pdjob::launcher
