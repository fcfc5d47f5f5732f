#include "launcher/clusters/merged_cluster.h"

#include <utility>

#include "common/check.h"

namespace pdjob::launcher {

namespace {

// Of what it tells; null: of a door or a log, for which each cluster keeps what it was asked.
struct NodeOf {
  const std::string* operator()(const NodeJoined& event) const { return &event.node.name; }
  const std::string* operator()(const NodeLost& event) const { return &event.name; }
  const std::string* operator()(const Spawned& event) const { return &event.node; }
  const std::string* operator()(const SpawnFailed& event) const { return &event.node; }
  const std::string* operator()(const ProcessExited& event) const { return &event.node; }
  const std::string* operator()(const ProcessSeen& event) const { return &event.node; }
  const std::string* operator()(const DoorOpened& /*event*/) const { return nullptr; }
  const std::string* operator()(const DoorFailed& /*event*/) const { return nullptr; }
  const std::string* operator()(const LogAnswered& /*event*/) const { return nullptr; }
};

}  // namespace

class MergedCluster::Part final : public Cluster::Handler {
 public:
  Part(MergedCluster& whole, std::unique_ptr<Cluster> cluster)
      : whole_(whole), cluster_(std::move(cluster)) {
    cluster_->report_to(*this);
  }
  void on_cluster_event(const ClusterEvent& event) override { whole_.take(*cluster_, event); }
  Cluster& cluster() const { return *cluster_; }

 private:
  MergedCluster& whole_;
  const std::unique_ptr<Cluster> cluster_;
};

MergedCluster::MergedCluster(net::Loop& loop, std::vector<std::unique_ptr<Cluster>> clusters)
    : loop_(loop) {
  for (std::unique_ptr<Cluster>& cluster : clusters) {
    for (const Node& node : cluster->nodes()) {
      by_node_.try_emplace(node.name, cluster.get());
    }
    parts_.push_back(std::make_unique<Part>(*this, std::move(cluster)));
  }
}

MergedCluster::~MergedCluster() = default;

std::vector<Node> MergedCluster::nodes() const {
  std::vector<Node> nodes;
  for (const auto& part : parts_) {
    for (Node& node : part->cluster().nodes()) {
      if (cluster_of(node.name) == &part->cluster()) {
        nodes.push_back(std::move(node));
      }
    }
  }
  return nodes;
}

void MergedCluster::open_door(const Door& door) {
  if (Cluster* const cluster = cluster_of(door.node)) {
    cluster->open_door(door);
  } else {
    fail_later(DoorFailed{door.name, "node " + door.node + " is not there"});
  }
}

void MergedCluster::close_door(const std::string& name) {
  for (const auto& part : parts_) {
    part->cluster().close_door(name);
  }
}

void MergedCluster::spawn(const SpawnOrder& order) {
  if (Cluster* const cluster = cluster_of(order.node)) {
    cluster->spawn(order);
  } else {
    fail_later(SpawnFailed{order.incarnation, "node " + order.node + " is not there", order.node});
  }
}

void MergedCluster::signal(const std::string& node, Incarnation incarnation, Signal signal) {
  if (Cluster* const cluster = cluster_of(node)) {
    cluster->signal(node, incarnation, signal);
  }
}

void MergedCluster::look_at(const std::string& node, Incarnation incarnation) {
  if (Cluster* const cluster = cluster_of(node)) {
    cluster->look_at(node, incarnation);
  }
}

void MergedCluster::read_log(const LogQuestion& question) {
  if (Cluster* const cluster = cluster_of(question.node)) {
    cluster->read_log(question);
  } else {
    fail_later(LogAnswered{.ticket = question.ticket});
  }
}

void MergedCluster::keep_warm(Duration time) {
  for (const std::unique_ptr<Part>& part : parts_) {
    part->cluster().keep_warm(time);
  }
}

bool MergedCluster::left_warm() const {
  return std::ranges::all_of(parts_, [](const auto& part) { return part->cluster().left_warm(); });
}

bool MergedCluster::may_tell(const Cluster& cluster, const ClusterEvent& event) const {
  const std::string* const node = std::visit(NodeOf(), event);
  const Cluster* const owner = node == nullptr ? nullptr : cluster_of(*node);
  return owner == nullptr || owner == &cluster;
}

void MergedCluster::take(Cluster& cluster, const ClusterEvent& event) {
  if (!may_tell(cluster, event)) {
    return;
  }
  if (const auto* joined = std::get_if<NodeJoined>(&event)) {
    by_node_[joined->node.name] = &cluster;
  } else if (const auto* lost = std::get_if<NodeLost>(&event)) {
    by_node_.erase(lost->name);
  }
  PDJOB_CHECK(handler_ != nullptr);
  handler_->on_cluster_event(event);
}

Cluster* MergedCluster::cluster_of(const std::string& node) const {
  const auto found = by_node_.find(node);
  return found == by_node_.end() ? nullptr : found->second;
}

void MergedCluster::fail_later(ClusterEvent event) {
  loop_.post([this, alive = std::weak_ptr(alive_), event = std::move(event)] {
    if (!alive.expired() && handler_ != nullptr) {
      handler_->on_cluster_event(event);
    }
  });
}

}  // namespace pdjob::launcher
