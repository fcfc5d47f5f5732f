// AgentRoster: the launcher's core for the agents of one cluster. It decides who may join, which
// agent is lost, and numbers what goes to each. An agent is lost when it is silent for the lease,
// when messages between it and the launcher were lost, or when it says so. It may then join again,
// with nothing running there. If agents may outlive their launcher, an agent whose connection ended
// has its orders held until it says Hello again. A roster that was stopped itself asks each agent
// for a sign first, because connections may have ended meanwhile. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "common/core.h"
#include "common/time.h"
#include "launcher/agents/agent_message.h"
#include "launcher/placement/node.h"

namespace pdjob::launcher {

struct RosterSetting {
  std::string cluster;
  std::string job;
  std::string build;  // An agent of another one is refused.
  std::string host;   // As in Welcome.
  Duration lease = std::chrono::seconds(5);
  Duration orphan_timeout{};
  std::string owner;           // As in Welcome; empty: nothing outlives this launcher.
  uint64_t launcher = 0;       // As in Welcome.
  std::optional<Node> only;    // The cluster has this node alone, whatever its agent says.
  uint64_t first_session = 1;  // From the operating system's random generator.
  size_t nodes_max = kClusterNodesMax;
};

// --- events
struct AgentSpoke {
  std::string route;  // Of its connection.
  AgentFrame frame;
};
// For the agent of that node; dropped if there is none.
struct AgentOrder {
  std::string node;
  AgentMessage message;
};
// Some connection ended: asks each agent for a sign, to learn whose it was.
struct SomeoneLeft {};
// This could not leave: the agent has no connection now.
struct AgentUnreachable {
  AgentFrame frame;
};
struct RosterClosed {  // The job is over.
  // All processes stay warm for so long, and agents answer that they have heard it; 0: they end.
  Duration keep{};
};
using RosterEvent =
    std::variant<AgentSpoke, AgentOrder, SomeoneLeft, AgentUnreachable, RosterClosed, TimePassed>;

// --- effects
struct SendToAgent {
  std::string route;
  AgentFrame frame;
};
struct NodeCame {
  Node node;
  NodeReady facts;
};
struct NodeGone {
  std::string node;
  std::string why;
};
struct NodeSaid {
  std::string node;
  AgentMessage message;
};
struct SayOfAgent {  // A warning for the log.
  std::string text;
};
using RosterEffect = std::variant<SendToAgent, NodeCame, NodeGone, NodeSaid, SayOfAgent>;

class AgentRoster {
 public:
  explicit AgentRoster(RosterSetting setting)
      : setting_(std::move(setting)), next_session_(setting_.first_session) {}

  void step(const RosterEvent& event, Instant now, std::vector<RosterEffect>& effects);
  Instant next_wakeup() const { return promised_; }

  // The nodes that are there, by name.
  std::vector<Node> nodes() const;
  // The job is over, and no agent is awaited.
  bool closed() const { return closed_ && agents_.empty(); }
  bool has(const std::string& node) const;

 private:
  struct Agent {
    uint64_t instance = 0;
    uint64_t session = 0;
    std::string route;
    std::string route_before;
    uint64_t sent = 0;
    uint64_t received = 0;
    Instant heard{};
    bool ready = false;
    // False: orders wait in `held` until it has answered, because those that were sent into a
    // connection that has ended would be a gap.
    bool reachable = true;
    uint64_t sign = 0;                        // A Hello with a lower one may be an old one.
    std::map<uint64_t, AgentMessage> unsent;  // Numbered, but they could not leave.
    std::deque<AgentMessage> held;
    Node node;
  };
  using Agents = std::map<std::string, Agent>;  // By the node's name.
  using Turn = pdjob::Turn<RosterEffect>;

  void on(const AgentSpoke& event, Turn& turn);
  void on(const AgentOrder& event, Turn& turn);
  void on(const SomeoneLeft& event, Turn& turn);
  void on(const AgentUnreachable& event, Turn& turn);
  void on(const RosterClosed& event, Turn& turn);
  void on(const TimePassed& event, Turn& turn);

  void greet(const std::string& route, const AgentHello& hello, Turn& turn);
  void welcome(Agent& agent, Turn& turn);
  void hear(Agents::iterator at, const AgentFrame& frame, Turn& turn);
  void lose(Agents::iterator at, const std::string& why, Turn& turn);
  std::string name_of(const AgentHello& hello) const;
  bool is_ours(uint64_t session) const;
  static void refuse(const std::string& route, const std::string& who, const std::string& reason,
                     Turn& turn);
  static void send(Agent& agent, AgentMessage message, Turn& turn);
  bool is_next(const AgentHello& hello) const;
  std::string objection(const AgentHello& hello) const;
  void wake_up(Instant now);
  // Asks an agent of which it is not known whether it hears this launcher.
  static void ask(const Agent& agent, Turn& turn);
  // It hears this launcher again.
  static void reach(Agent& agent, Turn& turn);
  static void take_back_unsent(Agent& agent);

  const RosterSetting setting_;
  uint64_t next_session_;
  Agents agents_;
  std::map<uint64_t, std::string> names_;  // By session.
  std::optional<uint64_t> replaced_;       // The instance of an agent that is dead.
  Instant beat_due_ = kNever;
  bool closed_ = false;
  Instant promised_ = kNever;
  Instant missed_ = kNever;  // The promise that the last sleep broke.
};

}  // namespace pdjob::launcher
