// SimHands: somebody who runs a job's processes by hand, without a launcher: each at an address of
// its own, and again when it has died.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "common/random.h"
#include "kvtransfer/link/link_keys.h"
#include "launcher/simulator/sim_cluster.h"
#include "launcher/simulator/sim_loop.h"

namespace pdjob::simulation {

class SimHands final : public launcher::Cluster::Handler {
 public:
  SimHands(SimLoop& loop, SimCluster& cluster, uint64_t seed);

  // Each order lacks its incarnation and its engine id, which are new with each start.
  void start(std::vector<SimCluster::Order> orders);
  // SIGTERM to all; nothing starts again.
  void stop();

  // The engine ids of those that run now, by name.
  const std::map<std::string, std::string>& running() const { return running_; }
  bool all_run() const { return running_.size() == orders_.size(); }

 private:
  void on_cluster_event(const launcher::ClusterEvent& event) override;
  void start(size_t index);

  SimLoop& loop_;
  SimCluster& cluster_;
  Random random_;
  const kvtransfer::LinkAuthority link_authority_;
  std::vector<SimCluster::Order> orders_;
  std::map<std::string, std::string> running_;
  uint64_t starts_ = 0;
  bool stopping_ = false;
};

}  // namespace pdjob::simulation
