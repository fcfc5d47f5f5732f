#include "launcher/placement/node.h"

#include <cstdio>

namespace pdjob::launcher {

namespace {

std::string with_bound(const std::string& amount, const std::string& bound) {
  return bound.empty() ? amount : amount + " (" + bound + ")";
}

}  // namespace

uint32_t Node::percent_of(const std::string& gpu) const {
  const auto part = gpu_parts.find(gpu);
  return part == gpu_parts.end() ? kWholeGpu : part->second;
}

std::string cores_text(const Node& node) {
  return with_bound(std::to_string(node.cores) + (node.cores == 1 ? " core" : " cores"),
                    node.cores_bound);
}

std::string memory_text(const Node& node) {
  return with_bound(gib_text(node.memory_bytes) + " of memory", node.memory_bound);
}

std::string gib_text(uint64_t bytes) {
  char text[32];
  std::snprintf(text, sizeof text, "%.1f GiB", static_cast<double>(bytes) / (1 << 30));
  return text;
}

std::string bounds_text(const std::vector<Node>& nodes) {
  std::string text;
  for (const Node& node : nodes) {
    if (!node.cores_bound.empty() || !node.memory_bound.empty()) {
      text += "node " + node.name + ": " + cores_text(node) + ", " + memory_text(node) + "\n";
    }
  }
  return text;
}

}  // namespace pdjob::launcher
