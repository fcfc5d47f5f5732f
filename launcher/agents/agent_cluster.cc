#include "launcher/agents/agent_cluster.h"

#include <span>
#include <utility>

#include "common/check.h"
#include "common/log.h"
#include "launcher/agents/agent_wire.h"

namespace pdjob::launcher {

namespace {

constexpr Duration kWarnAgain = std::chrono::minutes(1);
constexpr size_t kWarningsMax = 256;
constexpr Duration kSocketLearns = std::chrono::milliseconds(20);
constexpr Duration kLastMessages = std::chrono::milliseconds(500);  // To leave after the end.

}  // namespace

AgentCluster::AgentCluster(net::Loop& loop, const RosterSetting& setting)
    : loop_(loop), name_(setting.cluster), roster_(setting), runner_(loop, roster_, *this) {}

Result<std::unique_ptr<AgentCluster>> AgentCluster::open(net::EventLoop& loop,
                                                         const Options& options) {
  auto cluster = std::make_unique<AgentCluster>(loop, options.roster);
  PDJOB_TRY(auto server,
            net::CurveServer::open(loop, *cluster,
                                   {.host = options.host,
                                    .port = options.port,
                                    .keys = options.keys.launcher,
                                    .allows = [agent = options.keys.agent.public_key](
                                                  const std::string& key) { return key == agent; },
                                    .linger = kLastMessages,
                                    .use = options.use}));
  cluster->start(std::move(server));
  return cluster;
}

AgentCluster::~AgentCluster() {
  if (server_ != nullptr) {
    runner_.submit(RosterClosed{});
  }
}

// --- orders

void AgentCluster::order(const std::string& node, AgentMessage message) {
  runner_.submit(AgentOrder{node, std::move(message)});
}

void AgentCluster::open_door(const Door& door) {
  close_door(door.name);
  if (!roster_.has(door.node)) {
    tell_later(DoorFailed{door.name, "node " + door.node + " is not there"});
    return;
  }
  doors_[door.node][door.name] = true;
  order(door.node, OpenDoor{.name = door.name,
                            .host = door.host,
                            .port = door.port,
                            .shared = door.use == net::PortUse::kShared});
}

void AgentCluster::close_door(const std::string& name) {
  std::vector<std::string> holders;  // First all of them: an order may find that a node is gone.
  for (auto& [node, doors] : doors_) {
    if (doors.erase(name) > 0) {
      holders.push_back(node);
    }
  }
  for (const std::string& node : holders) {
    order(node, CloseDoor{name});
  }
}

void AgentCluster::spawn(const SpawnOrder& spawn) {
  if (!roster_.has(spawn.node)) {
    tell_later(SpawnFailed{spawn.incarnation, "node " + spawn.node + " is not there", spawn.node});
    return;
  }
  processes_[spawn.node].insert(spawn.incarnation);
  order(spawn.node,
        StartProcess{.incarnation = spawn.incarnation.value, .spec = net::encode_spec(spawn.spec)});
}

// Also a process that the node says has ended.
void AgentCluster::signal(const std::string& node, Incarnation incarnation, Signal signal) {
  order(node, SignalProcess{.incarnation = incarnation.value, .signal = signal});
}

void AgentCluster::look_at(const std::string& node, Incarnation incarnation) {
  order(node, LookAtProcess{incarnation.value});
}

void AgentCluster::read_log(const LogQuestion& question) {
  if (!roster_.has(question.node)) {
    tell_later(LogAnswered{.ticket = question.ticket});
    return;
  }
  node_of_ticket_[question.ticket] = question.node;
  order(question.node,
        ReadLog{.ticket = question.ticket, .process = question.process, .from = question.from});
}

// --- what agents say

void AgentCluster::on_bytes(const std::string& /*key*/, const std::string& route,
                            const std::string& bytes) {
  auto frame = decode_agent_frame(std::as_bytes(std::span(bytes.data(), bytes.size())));
  if (!frame) {
    warn(frame.error().message);
    return;
  }
  runner_.submit(AgentSpoke{route, std::move(*frame)});
}

void AgentCluster::on_refused(const std::string& why, uint64_t times) {
  log::warn("cluster " + name_ + ": " + why +
            (times > 1 ? ", " + std::to_string(times) + " times" : ""));
}

// A little later, the socket knows whose connection it was.
void AgentCluster::on_disconnected() {
  loop_.call_at(loop_.now() + kSocketLearns, [this, alive = std::weak_ptr(alive_)] {
    if (!alive.expired()) {
      runner_.submit(SomeoneLeft{});
    }
  });
}

// A message that cannot leave because the agent does not read is a gap, and the agent starts anew.
void AgentCluster::carry_out(const SendToAgent& effect) {
  if (server_->send(effect.route, encode(effect.frame)) == net::CurveSent::kGone) {
    runner_.submit(AgentUnreachable{effect.frame});
  }
}

void AgentCluster::carry_out(const NodeCame& effect) {
  const Node& node = effect.node;
  log::info("node " + node.name + " joined: " + node.host + ", " + cores_text(node));
  NodeJoined joined{.node = node};
  for (const RunningProcess& process : effect.facts.running) {
    if (processes_[node.name].insert(process.incarnation).second) {
      joined.running.push_back(process);
    }
  }
  for (const auto& [name, port] : effect.facts.doors) {
    if (doors_[node.name].try_emplace(name, false).second) {
      joined.doors.emplace(name, port);
    }
  }
  tell(joined);
}

void AgentCluster::carry_out(const NodeGone& effect) {
  log::warn("node " + effect.node + " is lost: " + effect.why);
  processes_.erase(effect.node);
  if (const auto doors = doors_.extract(effect.node)) {
    for (const auto& [name, awaited] : doors.mapped()) {
      if (awaited) {
        tell(DoorFailed{name, "node " + effect.node + " is lost: " + effect.why});
      }
    }
  }
  for (auto ticket = node_of_ticket_.begin(); ticket != node_of_ticket_.end();) {
    const auto [number, node] = *ticket++;
    if (node == effect.node) {
      node_of_ticket_.erase(number);
      tell(LogAnswered{.ticket = number});
    }
  }
  tell(NodeLost{effect.node, effect.why});
}

void AgentCluster::carry_out(const NodeSaid& effect) {
  std::visit([&](const auto& said) { take(effect.node, said); }, effect.message);
}

bool AgentCluster::answers_door(const std::string& node, const std::string& name) {
  const auto door = doors_[node].find(name);
  return door != doors_[node].end() && std::exchange(door->second, false);
}

void AgentCluster::take(const std::string& node, const DoorOpened& said) {
  if (answers_door(node, said.name)) {
    tell(said);
  }
}

void AgentCluster::take(const std::string& node, const DoorFailed& said) {
  if (answers_door(node, said.name)) {
    doors_[node].erase(said.name);
    tell(said);
  }
}

void AgentCluster::take(const std::string& node, const Spawned& said) {
  if (processes_[node].contains(said.incarnation)) {
    tell(Spawned{said.incarnation, said.pid, node});
  }
}

void AgentCluster::take(const std::string& node, const SpawnFailed& said) {
  if (processes_[node].erase(said.incarnation) > 0) {
    tell(SpawnFailed{said.incarnation, said.reason, node});
  }
}

void AgentCluster::take(const std::string& node, const ProcessExited& said) {
  if (processes_[node].erase(said.incarnation) > 0) {
    tell(ProcessExited{said.incarnation, said.how, said.crashed, node});
  }
}

void AgentCluster::take(const std::string& node, const ProcessSeen& said) {
  if (processes_[node].contains(said.incarnation)) {
    tell(ProcessSeen{said.incarnation, said.signs, node});
  }
}

void AgentCluster::take(const std::string& node, const LogAnswered& said) {
  const auto ticket = node_of_ticket_.find(said.ticket);
  if (ticket != node_of_ticket_.end() && ticket->second == node) {
    node_of_ticket_.erase(ticket);
    tell(said);
  }
}

// --- telling

void AgentCluster::tell_later(ClusterEvent event) {
  loop_.post([this, alive = std::weak_ptr(alive_), event = std::move(event)] {
    if (!alive.expired()) {
      tell(event);
    }
  });
}

void AgentCluster::tell(const ClusterEvent& event) {
  PDJOB_CHECK(handler_ != nullptr);
  handler_->on_cluster_event(event);
}

void AgentCluster::warn(const std::string& text) {
  const Instant now = loop_.now();
  const auto found = warned_.find(text);
  if (found != warned_.end() && now < found->second + kWarnAgain) {
    return;
  }
  if (warned_.size() >= kWarningsMax) {
    warned_.clear();
  }
  warned_[text] = now;
  log::warn("cluster " + name_ + ": " + text);
}

}  // namespace pdjob::launcher
