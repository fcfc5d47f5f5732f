// NodeTrust: how much went wrong on each node lately. A fault counts half after kHalfLife, a
// quarter after twice that, and so on, so each node is trusted again. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "common/time.h"

namespace pdjob::launcher {

using TrustLevels = std::map<std::string, uint32_t, std::less<>>;  // By node.

// A node's faults, for the next launcher. Value.
struct NodeFaults {
  std::string node;
  double faults = 0;  // At that time.
  Instant at{};
  friend bool operator==(const NodeFaults&, const NodeFaults&) = default;
};

class NodeTrust {
 public:
  static constexpr Duration kHalfLife = std::chrono::minutes(10);
  static constexpr Duration kOneIncident = std::chrono::seconds(1);
  static constexpr double kDeath = 1;
  static constexpr double kSlow = 3;  // One is enough to prefer another node.
  static constexpr double kPerLevel = 2;
  static constexpr uint32_t kLevelMax = 8;
  static constexpr size_t kNodesMax = 4096;  // Of a record.

  NodeTrust() = default;
  // Goes on with the record of another one, whatever is in it.
  explicit NodeTrust(const std::vector<NodeFaults>& record);

  // Faults within kOneIncident of the first one are one.
  void blame(const std::string& node, double weight, Instant now);
  // 0: trusted. Placement prefers nodes with a lower level.
  uint32_t level(const std::string& node, Instant now) const;
  // When it is trusted again if nothing more happens; `now` if it is.
  Instant trusted_at(const std::string& node, Instant now) const;
  // Of the nodes that are not trusted.
  TrustLevels levels(Instant now) const;
  // A death counts 1 at first.
  double faults(std::string_view node, Instant now) const;
  // It changes only when a node is blamed.
  std::vector<NodeFaults> record() const;

 private:
  struct Known {
    double faults = 0;  // At that time.
    Instant at{};
    Instant incident_began{};
    double incident = 0;  // Its heaviest fault.
  };
  static double faults(const Known& row, Instant now);

  std::map<std::string, Known, std::less<>> rows_;
};

}  // namespace pdjob::launcher
