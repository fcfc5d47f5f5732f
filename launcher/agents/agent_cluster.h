// AgentCluster: the machines whose agents joined this launcher; the launcher's half of
// `pdjob agent`. Nodes are called CLUSTER/NAME. Loop-bound.
#pragma once

#include <map>
#include <memory>
#include <set>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "launcher/agents/agent_keys.h"
#include "launcher/agents/agent_roster.h"
#include "launcher/clusters/cluster.h"
#include "net/loop/core_runner.h"
#include "net/loop/event_loop.h"
#include "net/loop/loop.h"

namespace pdjob::launcher {

class AgentCluster final : public Cluster, public net::CurveServer::Handler {
 public:
  struct Options {
    RosterSetting roster;
    std::string host;  // Where agents reach it.
    uint16_t port = 0;
    net::PortUse use = net::PortUse::kAlone;  // As in net::CurveServer::Options.
    AgentKeys keys;
  };
  // kUnavailable: the address cannot be listened on.
  static Result<std::unique_ptr<AgentCluster>> open(net::EventLoop& loop, const Options& options);

  // Nobody can join before start().
  AgentCluster(net::Loop& loop, const RosterSetting& setting);
  AgentCluster(const AgentCluster&) = delete;
  AgentCluster& operator=(const AgentCluster&) = delete;
  ~AgentCluster() override;  // Ends everything on the nodes.

  // The server's handler is this object.
  void start(std::unique_ptr<net::CurveServer> server) { server_ = std::move(server); }
  void report_to(Cluster::Handler& handler) override { handler_ = &handler; }
  std::vector<Node> nodes() const override { return roster_.nodes(); }
  void open_door(const Door& door) override;
  void close_door(const std::string& name) override;
  void spawn(const SpawnOrder& order) override;
  void signal(const std::string& node, Incarnation incarnation, Signal signal) override;
  void look_at(const std::string& node, Incarnation incarnation) override;
  void read_log(const LogQuestion& question) override;
  void keep_warm(Duration time) override { runner_.submit(RosterClosed{time}); }
  bool left_warm() const override { return roster_.closed(); }

  // "tcp://10.0.0.1:7700"
  const std::string& endpoint() const { return server_->endpoint(); }

 private:
  using Runner = net::CoreRunner<AgentCluster, AgentRoster, RosterEvent, RosterEffect>;
  friend Runner;

  void on_bytes(const std::string& key, const std::string& route,
                const std::string& bytes) override;
  void on_refused(const std::string& why, uint64_t times) override;
  void on_disconnected() override;

  void stepped(const RosterEvent& /*event*/, const std::vector<RosterEffect>& /*effects*/) {}
  void carried_out(const RosterEvent& /*event*/) {}
  void carry_out(const SendToAgent& effect);
  void carry_out(const NodeCame& effect);
  void carry_out(const NodeGone& effect);
  void carry_out(const NodeSaid& effect);
  void carry_out(const SayOfAgent& effect) { warn(effect.text); }

  void order(const std::string& node, AgentMessage message);
  // An agent may tell only of what it was ordered to do.
  void take(const std::string& node, const DoorOpened& said);
  void take(const std::string& node, const DoorFailed& said);
  void take(const std::string& node, const Spawned& said);
  void take(const std::string& node, const SpawnFailed& said);
  void take(const std::string& node, const ProcessExited& said);
  void take(const std::string& node, const ProcessSeen& said);
  void take(const std::string& node, const LogAnswered& said);
  template <class Message>
  void take(const std::string& /*node*/, const Message& /*said*/) {
    static_assert(!std::is_constructible_v<ClusterEvent, Message>, "the job waits for it");
  }
  // Forgets that the answer is awaited; false: it is not.
  bool answers_door(const std::string& node, const std::string& name);

  // Later: never inside an order.
  void tell_later(ClusterEvent event);
  void tell(const ClusterEvent& event);
  // Says the same at most once a minute.
  void warn(const std::string& text);

  net::Loop& loop_;
  const std::string name_;
  AgentRoster roster_;
  Cluster::Handler* handler_ = nullptr;
  // What each node was ordered to run, or says that an earlier launcher left there.
  std::map<std::string, std::set<Incarnation>> processes_;
  // The doors of each node, by name; true: no answer came yet.
  std::map<std::string, std::map<std::string, bool>> doors_;
  std::map<uint64_t, std::string> node_of_ticket_;
  std::map<std::string, Instant> warned_;
  Runner runner_;
  std::unique_ptr<net::CurveServer> server_;
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);  // For what waits in the loop.
};

}  // namespace pdjob::launcher
