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
  launcher::Door opened = door;
  opened.port = door.port != 0 ? door.port : 8000;
  doors_[door.name] = opened;
  door_changed(opened, true);
  tell(launcher::DoorOpened{door.name, opened.port});
}

void SimCluster::close_door(const std::string& name) {
  if (const auto found = doors_.extract(name)) {
    door_changed(found.mapped(), false);
  }
}

void SimCluster::spawn(const Order& order) {
  if (!nodes_.contains(order.node) || spawn_fails()) {
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
  } else if (signal == launcher::Signal::kTerminate) {
    terminated(incarnation);
  }
}

void SimCluster::look_at(Incarnation incarnation) {
  if (runs(incarnation)) {
    tell(launcher::ProcessSeen{incarnation, signs_of(incarnation)});
  }
}

void SimCluster::join(const launcher::Node& node) {
  nodes_[node.name] = node;
  tell(launcher::NodeJoined{node});
}

void SimCluster::lose(const std::string& node) {
  if (nodes_.erase(node) > 0) {
    for (auto each = running_.begin(); each != running_.end();) {
      const auto [incarnation, order] = *each++;
      if (order.node == node) {
        running_.erase(incarnation);
        gone(incarnation);
      }
    }
    tell(launcher::NodeLost{node, "no answer"});
  }
}

void SimCluster::end(Incarnation incarnation, const std::string& how, bool crashed) {
  if (running_.erase(incarnation) > 0) {
    gone(incarnation);
    tell(launcher::ProcessExited{incarnation, how, crashed});
  }
}

}  // namespace pdjob::simulation
