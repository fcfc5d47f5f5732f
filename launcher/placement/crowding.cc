#include "launcher/placement/crowding.h"

#include <algorithm>

namespace pdjob::launcher {

std::vector<std::string> crowding(const std::vector<NodeShare>& shares) {
  std::vector<std::string> texts;
  for (const NodeShare& share : shares) {
    const Node& node = share.node();
    if (share.cores_free() < 0) {
      texts.push_back("node " + node.name + " has " + cores_text(node) + " for " +
                      std::to_string(node.cores - share.cores_free()) +
                      " engine threads: expect them to slow each other");
    }
    if (share.memory_free() < 0) {
      texts.push_back(
          "node " + node.name + " lacks " +
          Shortfall{.memory_bytes = static_cast<uint64_t>(-share.memory_free())}.text() +
          (node.memory_bound.empty() ? "" : " (" + node.memory_bound + ")") +
          ": expect processes to be killed");
    }
  }
  return texts;
}

std::vector<std::string> crowding_after(Placement placement,
                                        const std::vector<std::pair<Demand, uint64_t>>& more) {
  const std::vector<std::string> before = crowding(placement.shares());
  for (const auto& [demand, count] : more) {
    for (uint64_t i = 0; i < count && placement.take(demand); ++i) {
    }
  }
  std::vector<std::string> after = crowding(placement.shares());
  std::erase_if(after, [&](const std::string& text) {
    return std::ranges::find(before, text) != before.end();
  });
  return after;
}

}  // namespace pdjob::launcher
