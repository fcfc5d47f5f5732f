// RayCluster: several Ray clusters, merged into one, as a Cluster. It is the shell of RaySession:
// through the shim it takes nodes from Ray and starts an agent on each. The agents join the
// clusters of agents that it is given, which do all the rest; Ray is on the path of nothing that
// they do. Loop-bound.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "launcher/clusters/cluster.h"
#include "launcher/ray/ray_session.h"
#include "launcher/ray/shim_process.h"
#include "net/loop/core_runner.h"
#include "net/loop/event_loop.h"
#include "net/loop/socket.h"

namespace pdjob::launcher {

// How an agent on the nodes of one Ray cluster is started.
struct RayAgentSetting {
  std::string program;   // pdjob, on those nodes.
  bool ship = false;     // See StartAgent.
  std::string endpoint;  // HOST:PORT where it joins.
  std::string key;       // Secret.
  RayShare share;        // What the node offers to the job.
};

class RayCluster final : public Cluster, Cluster::Handler, ShimProcess::Handler {
 public:
  struct Options {
    RaySetting setting;
    ShimOptions shim;
    std::map<std::string, RayAgentSetting> agents;  // By the name of the Ray cluster.
    net::Fd log;                                    // Of shim.log.
  };
  // `agents`: where the agents of all these clusters join. Its nodes are called CLUSTER/NUMBER.
  RayCluster(net::EventLoop& loop, std::unique_ptr<Cluster> agents, Options options);
  RayCluster(const RayCluster&) = delete;
  RayCluster& operator=(const RayCluster&) = delete;
  // Ends all agents, and waits until Ray has everything back, but at most close_timeout.
  ~RayCluster() override;

  void report_to(Cluster::Handler& handler) override { handler_ = &handler; }
  std::vector<Node> nodes() const override { return agents_->nodes(); }
  void open_door(const Door& door) override { agents_->open_door(door); }
  void close_door(const std::string& name) override { agents_->close_door(name); }
  void spawn(const SpawnOrder& order) override { agents_->spawn(order); }
  void look_at(const std::string& node, Incarnation incarnation) override {
    agents_->look_at(node, incarnation);
  }
  void signal(const std::string& node, Incarnation incarnation, Signal signal) override {
    agents_->signal(node, incarnation, signal);
  }
  void read_log(const LogQuestion& question) override { agents_->read_log(question); }

 private:
  using Runner = net::CoreRunner<RayCluster, RaySession, RayEvent, RayEffect>;
  friend Runner;

  void on_cluster_event(const ClusterEvent& event) override;
  void on_shim_line(const ShimLine& line) override;
  void on_shim_gone(const std::string& why) override;

  void stepped(const RayEvent& /*event*/, const std::vector<RayEffect>& /*effects*/) {}
  void carried_out(const RayEvent& /*event*/) {}
  void carry_out(const StartShim& effect);
  void carry_out(const EndShim& effect);
  void carry_out(const AskShim& effect);
  void carry_out(const StartSlotAgent& effect);
  void carry_out(const SayOfRay& effect);
  void carry_out(const RayClosed& effect);

  net::EventLoop& loop_;
  const Options options_;
  Cluster::Handler* handler_ = nullptr;
  RaySession session_;
  Runner runner_;
  std::unique_ptr<ShimProcess> shim_;
  std::unique_ptr<ShimProcess> ended_shim_;  // It may be on the stack when it ends.
  std::unique_ptr<Cluster> agents_;
  bool closed_ = false;
};

}  // namespace pdjob::launcher
