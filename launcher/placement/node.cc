#include "launcher/placement/node.h"

#include <cstdio>
#include <numeric>

namespace pdjob::launcher {

namespace {

std::string with_bound(const std::string& amount, const std::string& bound) {
  return bound.empty() ? amount : amount + " (" + bound + ")";
}

}  // namespace

uint32_t percent_of(const GpuParts& parts, const std::string& gpu) {
  const auto part = parts.find(gpu);
  return part == parts.end() ? kWholeGpu : part->second;
}

uint64_t percent_of_all(const std::vector<std::string>& gpus, const GpuParts& parts) {
  return std::accumulate(
      gpus.begin(), gpus.end(), uint64_t{0},
      [&parts](uint64_t sum, const std::string& gpu) { return sum + percent_of(parts, gpu); });
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
