#include "launcher/placement/node_trust.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace pdjob::launcher {

namespace {

constexpr double kForgotten = 0.01;
constexpr double kFaultsMax = NodeTrust::kPerLevel * NodeTrust::kLevelMax;

}  // namespace

// The end of an incident that begins under another launcher may count once more.
NodeTrust::NodeTrust(const std::vector<NodeFaults>& record) {
  for (const NodeFaults& known : record) {
    if (known.faults >= kForgotten) {  // Nor is it a NaN.
      rows_[known.node] = {.faults = std::min(known.faults, kFaultsMax), .at = known.at};
    }
  }
}

double NodeTrust::faults(const Known& row, Instant now) {
  const std::chrono::duration<double> passed = now - row.at;
  return row.faults * std::exp2(-passed / std::chrono::duration<double>(kHalfLife));
}

void NodeTrust::blame(const std::string& node, double weight, Instant now) {
  std::erase_if(rows_, [now](const auto& each) { return faults(each.second, now) < kForgotten; });
  Known& row = rows_[node];
  const bool same = row.incident > 0 && now - row.incident_began <= kOneIncident;
  const double before = same ? row.incident : 0;
  row = {.faults = std::min(faults(row, now) + std::max(weight - before, 0.0), kFaultsMax),
         .at = now,
         .incident_began = same ? row.incident_began : now,
         .incident = std::max(weight, before)};
}

double NodeTrust::faults(std::string_view node, Instant now) const {
  const auto row = rows_.find(node);
  return row == rows_.end() ? 0 : faults(row->second, now);
}

uint32_t NodeTrust::level(const std::string& node, Instant now) const {
  return static_cast<uint32_t>(faults(node, now) / kPerLevel);
}

Instant NodeTrust::trusted_at(const std::string& node, Instant now) const {
  const auto row = rows_.find(node);
  if (row == rows_.end() || faults(row->second, now) < kPerLevel) {
    return now;
  }
  const double half_lives = std::log2(row->second.faults / kPerLevel);
  return row->second.at + std::chrono::duration_cast<Duration>(
                              half_lives * std::chrono::duration<double>(kHalfLife));
}

TrustLevels NodeTrust::levels(Instant now) const {
  TrustLevels levels;
  for (const auto& [node, row] : rows_) {
    if (const uint32_t own = level(node, now); own > 0) {
      levels[node] = own;
    }
  }
  return levels;
}

std::vector<NodeFaults> NodeTrust::record() const {
  std::vector<NodeFaults> record;
  for (auto row = rows_.begin(); row != rows_.end() && record.size() < kNodesMax; ++row) {
    record.push_back({.node = row->first, .faults = row->second.faults, .at = row->second.at});
  }
  return record;
}

}  // namespace pdjob::launcher
