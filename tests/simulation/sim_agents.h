// SimAgents: the machines of clusters of agents, and those clusters as the launcher has them. The
// launcher's end and the session of an agent are the production code. The double is the shell of an
// agent: it runs its processes on a SimCluster. Agents are killed, lose their power, are stopped,
// and come back.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/random.h"
#include "launcher/agents/agent_cluster.h"
#include "launcher/simulator/sim_cluster.h"
#include "launcher/simulator/sim_process.h"
#include "tests/simulation/sim_links.h"

namespace pdjob::simulation {

class SimAgents {
 public:
  struct Setting {
    Duration lease = std::chrono::seconds(2);
    Duration orphan_timeout{};
    std::string owner;  // As in Welcome; empty: nothing outlives its launcher.
  };
  using Trace = std::function<void(const std::string& who, const std::string& what)>;

  SimAgents(SimLoop& loop, SimMachines& machines, SimLinks& links, const Setting& setting,
            uint64_t seed, Trace trace);
  SimAgents(const SimAgents&) = delete;
  SimAgents& operator=(const SimAgents&) = delete;
  ~SimAgents();

  // The launcher's end. `number`: of the run's launchers, which one this is. `only`: the node of a
  // cluster that has no other.
  std::unique_ptr<launcher::Cluster> serve(const std::string& name, SimProcess& launcher,
                                           uint64_t number = 1,
                                           std::optional<launcher::Node> only = std::nullopt);
  // Starts an agent.
  void add(const launcher::Node& node);

  // --- faults. A node's name is CLUSTER/NAME.
  void kill(const std::string& node);
  void lose_power(const std::string& node);
  void freeze(const std::string& node, Duration duration);
  // A killed agent starts again. Nothing happens to one that lives.
  void revive(const std::string& node);
  void go_on();  // Those that are stopped.

  // How long a process may run after the launcher has given its node up: the agent hears the last
  // beat when the launcher does, but beats may be under way, as long as the lease itself.
  Duration outlives() const;
  // Since when the agent has not been stopped. kNever: it is stopped. A dead one never was.
  Instant awake_since(const std::string& node) const;
  // No session is left.
  bool idle() const;

 private:
  class Agent;
  struct Machine {
    launcher::Node node;
    uint64_t instance = 0;
    std::unique_ptr<Agent> agent;  // Null: it is dead.
    Instant awake_since{};
    bool stopped = false;
  };

  SimLoop& loop_;
  SimMachines& machines_;
  SimLinks& links_;
  const Setting setting_;
  Random random_;
  const Trace trace_;
  uint64_t instances_ = 0;
  std::map<std::string, Machine> by_name_;
};

}  // namespace pdjob::simulation
