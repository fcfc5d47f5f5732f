// NodeTrust: how much went wrong on each node lately. A fault counts half after kHalfLife, a
// quarter after twice that, and so on, so each node is trusted again. Pure.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>

#include "common/time.h"

namespace pdjob::launcher {

using TrustLevels = std::map<std::string, uint32_t, std::less<>>;  // By node.

class NodeTrust {
 public:
  static constexpr Duration kHalfLife = std::chrono::minutes(10);
  static constexpr Duration kOneIncident = std::chrono::seconds(1);
  static constexpr double kDeath = 1;
  static constexpr double kSlow = 3;  // One is enough to prefer another node.
  static constexpr double kPerLevel = 2;
  static constexpr uint32_t kLevelMax = 8;

  // Faults within kOneIncident of the first one are one.
  void blame(const std::string& node, double weight, Instant now);
  // 0: trusted. Placement prefers nodes with a lower level.
  uint32_t level(const std::string& node, Instant now) const;
  // When it is trusted again if nothing more happens; `now` if it is.
  Instant trusted_at(const std::string& node, Instant now) const;
  // Of the nodes that are not trusted.
  TrustLevels levels(Instant now) const;

 private:
  struct Row {
    double faults = 0;  // At that time.
    Instant at{};
    Instant incident_began{};
    double incident = 0;  // Its heaviest fault.
  };
  static double faults(const Row& row, Instant now);

  std::map<std::string, Row> rows_;
};

}  // namespace pdjob::launcher
