// SimMachines: all processes that run on simulated machines, whoever started them. The world
// decides what a living process does. SimCluster: machines as the launcher, or an agent, has them
// before it. Nodes join and are lost, processes start slowly, fail to start, and die when told to.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "common/random.h"
#include "launcher/clusters/cluster.h"
#include "launcher/simulator/sim_network.h"

namespace pdjob::simulation {

class SimCluster;

class SimMachines {
 public:
  using Order = launcher::SpawnOrder;

  // Called when a process begins and when it is gone, for each SIGTERM, and for each door.
  std::function<void(const Order&)> began;
  std::function<void(launcher::Incarnation)> gone;
  std::function<void(launcher::Incarnation)> terminated;
  std::function<void(const launcher::Door&, bool open)> door_changed;
  std::function<launcher::VitalSigns(launcher::Incarnation)> signs_of;
  std::function<bool()> spawn_fails = [] { return false; };

  bool runs(launcher::Incarnation incarnation) const { return running_.contains(incarnation); }
  const std::map<launcher::Incarnation, Order>& running() const { return running_; }
  // The process dies. Its cluster tells it.
  void end(launcher::Incarnation incarnation, const std::string& how, bool crashed);

  // The other nodes of processes over several: such a part only lives and dies.
  using Part = std::pair<std::string, launcher::Incarnation>;  // Its node.
  const std::map<Part, SimCluster*>& followers() const { return followers_; }
  void end_follower(const Part& part, const std::string& how);

 private:
  friend SimCluster;
  void start(const Order& order, SimCluster& cluster);
  bool runs_for(const SimCluster& cluster, launcher::Incarnation incarnation) const;
  // Ends without a word what a cluster has started, on one node or, with "", on all.
  void kill(const SimCluster& cluster, const std::string& node);

  std::map<launcher::Incarnation, Order> running_;
  std::map<launcher::Incarnation, SimCluster*> started_by_;
  std::map<Part, SimCluster*> followers_;
};

class SimCluster final : public launcher::Cluster {
 public:
  using Order = SimMachines::Order;
  // Runs the task at that time, and in the order of the calls.
  using Later = std::function<void(Instant, SimLoop::Task)>;

  SimCluster(SimLoop& loop, SimMachines& machines, uint64_t seed, Later later)
      : loop_(loop), machines_(machines), random_(seed), later_(std::move(later)) {}
  SimCluster(const SimCluster&) = delete;
  SimCluster& operator=(const SimCluster&) = delete;
  ~SimCluster() override;  // Kills what it has started.

  void report_to(Handler& handler) override { handler_ = &handler; }
  std::vector<launcher::Node> nodes() const override;
  void open_door(const launcher::Door& door) override;
  void close_door(const std::string& name) override;
  void spawn(const Order& order) override;
  void signal(const std::string& node, launcher::Incarnation incarnation,
              launcher::Signal signal) override;
  void look_at(const std::string& node, launcher::Incarnation incarnation) override;
  void read_log(const launcher::LogQuestion& question) override {
    tell(launcher::LogAnswered{.ticket = question.ticket});  // Its processes write none.
  }

  // Its launcher hears of each event within 0.1 ms instead of 20 ms. Connections of a process that
  // ended may break later.
  void tell_soon() { tells_soon_ = true; }

  // --- what happens to it
  void join(const launcher::Node& node);
  void lose(const std::string& node);
  // What it has started and still runs.
  std::vector<launcher::RunningProcess> running() const;
  // The ports of its open doors, by name.
  std::map<std::string, uint16_t> doors() const;
  bool has(const std::string& node) const { return nodes_.contains(node); }

 private:
  friend SimMachines;
  void tell(launcher::ClusterEvent event);

  SimLoop& loop_;
  SimMachines& machines_;
  Random random_;
  const Later later_;
  bool tells_soon_ = false;
  Handler* handler_ = nullptr;
  std::map<std::string, launcher::Node> nodes_;
  std::map<std::string, launcher::Door> doors_;
  SimChannel events_;                                           // They arrive in order.
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);  // For what waits in the loop.
};

}  // namespace pdjob::simulation
