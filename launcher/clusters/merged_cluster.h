// MergedCluster: several clusters as one. Orders go to the cluster that has the node, and a cluster
// speaks for its own nodes only: a node whose name another cluster has already is dropped, and so
// is what is said in its name. Loop-bound.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "launcher/clusters/cluster.h"
#include "net/loop/loop.h"

namespace pdjob::launcher {

class MergedCluster final : public Cluster {
 public:
  // The loop must outlive it.
  MergedCluster(net::Loop& loop, std::vector<std::unique_ptr<Cluster>> clusters);
  ~MergedCluster() override;

  void report_to(Handler& handler) override { handler_ = &handler; }
  // In the order of the clusters. Each name is there once.
  std::vector<Node> nodes() const override;
  void open_door(const Door& door) override;
  void close_door(const std::string& name) override;
  void spawn(const SpawnOrder& order) override;
  void signal(const std::string& node, Incarnation incarnation, Signal signal) override;
  void look_at(const std::string& node, Incarnation incarnation) override;
  void read_log(const LogQuestion& question) override;
  void keep_warm(Duration time) override;
  bool left_warm() const override;

 private:
  class Part;  // One cluster, and the handler of its events.

  void take(Cluster& cluster, const ClusterEvent& event);
  // No other cluster has what it tells of.
  bool may_tell(const Cluster& cluster, const ClusterEvent& event) const;
  Cluster* cluster_of(const std::string& node) const;  // Null: no such node.
  void fail_later(ClusterEvent event);

  net::Loop& loop_;
  Handler* handler_ = nullptr;
  std::map<std::string, Cluster*> by_node_;
  std::vector<std::unique_ptr<Part>> parts_;
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);  // For what waits in the loop.
};

}  // namespace pdjob::launcher
