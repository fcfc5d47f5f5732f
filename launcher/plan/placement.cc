#include "launcher/plan/placement.h"

#include <algorithm>
#include <tuple>
#include <utility>

namespace pdjob::launcher {

Placement::Placement(const std::vector<Node>& nodes) {
  for (const Node& node : nodes) {
    add(node);
  }
}

void Placement::add(const Node& node) {
  Share& share = shares_.try_emplace(node.name, Share{.order = joined_++}).first->second;
  share.node = node;
}

void Placement::remove(const std::string& node) { shares_.erase(node); }

std::optional<Place> Placement::take(const Demand& demand) {
  Share* best = nullptr;
  for (auto& [name, share] : shares_) {
    const auto rank = [](const Share& one) { return std::tuple(-one.cores_free(), one.order); };
    if (!share.node.routers_only && share.node.gpus.size() >= demand.gpus &&
        (best == nullptr || rank(share) < rank(*best))) {
      best = &share;
    }
  }
  if (best == nullptr) {
    return std::nullopt;
  }
  std::vector<std::pair<uint32_t, size_t>> uses;  // Of each GPU, with its place in the list.
  for (const std::string& gpu : best->node.gpus) {
    uses.emplace_back(best->gpu_uses[gpu], uses.size());
  }
  std::ranges::sort(uses);
  Place place{.node = best->node.name};
  for (size_t i = 0; i < demand.gpus; ++i) {
    place.gpus.push_back(best->node.gpus[uses[i].second]);
  }
  take(place, demand);
  return place;
}

void Placement::take(const Place& place, const Demand& demand) {
  const auto share = shares_.find(place.node);
  if (share == shares_.end()) {
    return;
  }
  share->second.cores_used += demand.cores;
  for (const std::string& gpu : place.gpus) {
    ++share->second.gpu_uses[gpu];
  }
}

void Placement::release(const Place& place, const Demand& demand) {
  const auto share = shares_.find(place.node);
  if (share == shares_.end()) {
    return;
  }
  share->second.cores_used -= std::min<uint64_t>(share->second.cores_used, demand.cores);
  for (const std::string& gpu : place.gpus) {
    uint32_t& uses = share->second.gpu_uses[gpu];
    uses -= std::min(uses, 1U);
  }
}

}  // namespace pdjob::launcher
