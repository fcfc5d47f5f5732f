#include "tests/simulation/sim_cluster.h"

#include <algorithm>

namespace pdjob::simulation {

using launcher::Incarnation;
using std::chrono::milliseconds;

std::vector<launcher::Node> SimCluster::nodes() const {
  std::vector<launcher::Node> nodes;
  for (const auto& [name, node] : nodes_) {
    nodes.push_back(node);
  }
  return nodes;
}

void SimCluster::tell(launcher::ClusterEvent event) {
  const Duration delay = milliseconds(random_.below(20));
  events_.last_arrival = std::max(events_.last_arrival, loop_.now() + delay);
  loop_.at(events_.last_arrival,
           [this, event = std::move(event)] { handler_->on_cluster_event(event); });
}

void SimCluster::open_door(const launcher::Door& door) {
  doors_[door.name] = door;
  tell(launcher::DoorOpened{door.name, 8000});
}

void SimCluster::spawn(const Order& order) {
  if (!nodes_.contains(order.node) || random_.chance(spawn_failures)) {
    tell(launcher::SpawnFailed{order.incarnation, "the node refuses"});
    return;
  }
  running_.emplace(order.incarnation, order);
  tell(launcher::Spawned{order.incarnation, static_cast<int64_t>(order.incarnation.value)});
  began(order);
}

void SimCluster::signal(Incarnation incarnation, launcher::Signal signal) {
  if (!runs(incarnation)) {
    return;
  }
  if (signal == launcher::Signal::kKill) {
    end(incarnation, "signal 9 (Killed)", false);
  } else {
    signalled(incarnation, signal);
  }
}

void SimCluster::join(const launcher::Node& node) {
  nodes_[node.name] = node;
  tell(launcher::NodeJoined{node});
}

void SimCluster::lose(const std::string& node) {
  if (nodes_.erase(node) > 0) {
    std::erase_if(running_, [&](const auto& row) { return row.second.node == node; });
    tell(launcher::NodeLost{node, "no answer"});
  }
}

void SimCluster::end(Incarnation incarnation, const std::string& how, bool crashed) {
  if (running_.erase(incarnation) > 0) {
    tell(launcher::ProcessExited{incarnation, how, crashed});
  }
}

}  // namespace pdjob::simulation
