// SimCluster: simulated machines on virtual time. Nodes join and are lost, processes start slowly,
// fail to start, and die when told to. The world decides what a living process does.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "common/random.h"
#include "launcher/clusters/cluster.h"
#include "tests/simulation/sim_loop.h"

namespace pdjob::simulation {

class SimCluster final : public launcher::Cluster {
 public:
  using Order = launcher::SpawnOrder;

  SimCluster(SimLoop& loop, uint64_t seed) : loop_(loop), random_(seed) {}

  // Called when a process begins and when it is gone, for each SIGTERM, and for each door.
  std::function<void(const Order&)> began;
  std::function<void(launcher::Incarnation)> gone;
  std::function<void(launcher::Incarnation)> terminated;
  std::function<void(const launcher::Door&, bool open)> door_changed;
  std::function<launcher::VitalSigns(launcher::Incarnation)> signs_of;
  std::function<bool()> spawn_fails = [] { return false; };

  void report_to(Handler& handler) override { handler_ = &handler; }
  std::vector<launcher::Node> nodes() const override;
  void open_door(const launcher::Door& door) override;
  void close_door(const std::string& name) override;
  void spawn(const Order& order) override;
  void signal(launcher::Incarnation incarnation, launcher::Signal signal) override;
  void look_at(launcher::Incarnation incarnation) override;
  void read_log(const launcher::LogQuestion& question) override {
    tell(launcher::LogAnswered{.ticket = question.ticket});  // Its processes write none.
  }

  // --- what happens to it
  void join(const launcher::Node& node);
  void lose(const std::string& node);
  void end(launcher::Incarnation incarnation, const std::string& how, bool crashed);

  bool has(const std::string& node) const { return nodes_.contains(node); }
  bool runs(launcher::Incarnation incarnation) const { return running_.contains(incarnation); }
  // Those that run, on nodes that are there.
  const std::map<launcher::Incarnation, Order>& running() const { return running_; }

 private:
  void tell(launcher::ClusterEvent event);

  SimLoop& loop_;
  Random random_;
  Handler* handler_ = nullptr;
  std::map<std::string, launcher::Node> nodes_;
  std::map<std::string, launcher::Door> doors_;
  std::map<launcher::Incarnation, Order> running_;
  SimChannel events_;  // They arrive in order.
};

}  // namespace pdjob::simulation
