#include "launcher/simulator/sim_cluster.h"

#include <algorithm>
#include <utility>

namespace pdjob::simulation {

using launcher::Incarnation;
using std::chrono::milliseconds;

namespace {

int64_t pid_of(Incarnation incarnation) { return static_cast<int64_t>(incarnation.value); }

}  // namespace

void SimMachines::start(const Order& order, SimCluster& cluster) {
  running_.emplace(order.incarnation, order);
  started_by_[order.incarnation] = &cluster;
  began(order);
}

bool SimMachines::runs_for(const SimCluster& cluster, Incarnation incarnation) const {
  const auto found = started_by_.find(incarnation);
  return found != started_by_.end() && found->second == &cluster;
}

void SimMachines::end(Incarnation incarnation, const std::string& how, bool crashed) {
  if (const auto order = running_.extract(incarnation)) {
    SimCluster* const cluster = started_by_.extract(incarnation).mapped();
    gone(incarnation);
    cluster->tell(launcher::ProcessExited{incarnation, how, crashed, order.mapped().node});
  }
}

void SimMachines::end_follower(const Part& part, const std::string& how) {
  if (const auto found = followers_.extract(part)) {
    found.mapped()->tell(launcher::ProcessExited{part.second, how, false, part.first});
  }
}

void SimMachines::kill(const SimCluster& cluster, const std::string& node) {
  std::erase_if(followers_, [&](const auto& each) {
    return each.second == &cluster && (node.empty() || each.first.first == node);
  });
  for (auto each = running_.begin(); each != running_.end();) {
    const auto [incarnation, order] = *each++;
    if (runs_for(cluster, incarnation) && (node.empty() || order.node == node)) {
      running_.erase(incarnation);
      started_by_.erase(incarnation);
      gone(incarnation);
    }
  }
}

SimCluster::~SimCluster() {
  machines_.kill(*this, "");
  while (!doors_.empty()) {
    close_door(doors_.begin()->first);
  }
}

std::vector<launcher::Node> SimCluster::nodes() const {
  std::vector<launcher::Node> nodes;
  for (const auto& [name, node] : nodes_) {
    nodes.push_back(node);
  }
  return nodes;
}

void SimCluster::tell(launcher::ClusterEvent event) {
  const Duration delay = tells_soon_ ? Duration(std::chrono::microseconds(1 + random_.below(100)))
                                     : Duration(milliseconds(random_.below(20)));
  events_.last_arrival = std::max(events_.last_arrival, loop_.now() + delay);
  later_(events_.last_arrival, [this, alive = std::weak_ptr(alive_), event = std::move(event)] {
    if (!alive.expired()) {
      handler_->on_cluster_event(event);
    }
  });
}

void SimCluster::open_door(const launcher::Door& door) {
  launcher::Door opened = door;
  opened.port = door.port != 0 ? door.port : 8000;
  doors_[door.name] = opened;
  machines_.door_changed(opened, true);
  tell(launcher::DoorOpened{door.name, opened.port});
}

void SimCluster::close_door(const std::string& name) {
  if (const auto found = doors_.extract(name)) {
    machines_.door_changed(found.mapped(), false);
  }
}

void SimCluster::spawn(const Order& order) {
  if (!nodes_.contains(order.node) || machines_.spawn_fails()) {
    tell(launcher::SpawnFailed{order.incarnation, "the node refuses", order.node});
    return;
  }
  tell(launcher::Spawned{order.incarnation, pid_of(order.incarnation), order.node});
  if (order.spec.part > 0) {
    machines_.followers_[{order.node, order.incarnation}] = this;
    return;
  }
  machines_.start(order, *this);
}

void SimCluster::signal(const std::string& node, Incarnation incarnation, launcher::Signal signal) {
  if (const SimMachines::Part part(node, incarnation);
      machines_.followers_.contains(part) && machines_.followers_.at(part) == this) {
    machines_.end_follower(part, to_string(signal));
    return;
  }
  if (!machines_.runs_for(*this, incarnation) || machines_.running().at(incarnation).node != node) {
    return;
  }
  if (signal == launcher::Signal::kKill) {
    machines_.end(incarnation, "signal 9 (Killed)", false);
  } else if (signal == launcher::Signal::kTerminate) {
    machines_.terminated(incarnation);
  }
}

std::vector<launcher::RunningProcess> SimCluster::running() const {
  std::vector<launcher::RunningProcess> running;
  for (const auto& [incarnation, order] : machines_.running()) {
    if (machines_.runs_for(*this, incarnation)) {
      running.push_back({.incarnation = incarnation, .pid = pid_of(incarnation)});
    }
  }
  for (const auto& [part, cluster] : machines_.followers()) {
    if (cluster == this) {
      running.push_back({.incarnation = part.second, .pid = pid_of(part.second)});
    }
  }
  return running;
}

std::map<std::string, uint16_t> SimCluster::doors() const {
  std::map<std::string, uint16_t> ports;
  for (const auto& [name, door] : doors_) {
    ports.emplace(name, door.port);
  }
  return ports;
}

void SimCluster::look_at(const std::string& node, Incarnation incarnation) {
  if (machines_.runs_for(*this, incarnation)) {
    tell(launcher::ProcessSeen{incarnation, machines_.signs_of(incarnation), node});
  }
}

void SimCluster::join(const launcher::Node& node) {
  nodes_[node.name] = node;
  tell(launcher::NodeJoined{node});
}

void SimCluster::lose(const std::string& node) {
  if (nodes_.erase(node) > 0) {
    machines_.kill(*this, node);
    tell(launcher::NodeLost{node, "no answer"});
  }
}

}  // namespace pdjob::simulation
