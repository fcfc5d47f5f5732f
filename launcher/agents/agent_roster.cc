#include "launcher/agents/agent_roster.h"

#include <algorithm>
#include <cctype>
#include <utility>

#include "common/check.h"
#include "common/config/number_list.h"
#include "launcher/agents/agent_session.h"

namespace pdjob::launcher {

namespace {

uint64_t milliseconds(Duration duration) {
  return static_cast<uint64_t>(duration / std::chrono::milliseconds(1));
}

constexpr size_t kNameBytesMax = 63;
// This late, the roster was stopped. ZeroMQ ends connections after 10 s without a sign.
constexpr Duration kStoodStill = std::chrono::seconds(2);

// Facts of a node reach logs and terminals.
bool is_printable(const std::string& text) {
  return std::ranges::all_of(text, [](char c) { return c >= ' ' && c <= '~'; });
}

bool is_plain(const NodeTopology& topology) {
  return std::ranges::all_of(
             topology.gpus,
             [](const GpuFacts& gpu) { return std::ranges::all_of(gpu.nics, is_nic_name); }) &&
         std::ranges::all_of(topology.numa, [](const NumaFacts& numa) {
           return numa.number < kListedNumbersMax && parse_number_list(numa.cpus).has_value();
         });
}

bool is_plain(const AgentHello& hello) {
  return is_printable(hello.build) && is_printable(hello.cores_bound) &&
         is_printable(hello.memory_bound) && std::ranges::all_of(hello.gpus, is_printable) &&
         std::ranges::all_of(hello.gpu_parts, is_printable, &GpuParts::value_type::first) &&
         std::ranges::all_of(hello.labels,
                             [](const auto& label) {
                               return is_printable(label.first) && is_printable(label.second);
                             }) &&
         is_plain(hello.topology);
}

bool is_address(const std::string& host) {
  return !host.empty() && host.size() <= kNameBytesMax && std::ranges::all_of(host, [](char c) {
    return std::isxdigit(static_cast<unsigned char>(c)) != 0 || c == '.' || c == ':';
  });
}

bool is_node_name(const std::string& name) {
  return !name.empty() && name.size() <= kNameBytesMax && std::ranges::all_of(name, [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '-' || c == '_' || c == '.';
  });
}

}  // namespace

void AgentRoster::step(const RosterEvent& event, Instant now, std::vector<RosterEffect>& effects) {
  Turn turn{now, effects};
  wake_up(now);
  std::visit([&](const auto& body) { on(body, turn); }, event);
  promised_ = agents_.empty() ? kNever : beat_due_;  // Leases are looked at with each beat, too.
}

std::vector<Node> AgentRoster::nodes() const {
  std::vector<Node> nodes;
  for (const auto& [name, agent] : agents_) {
    if (agent.ready) {
      nodes.push_back(agent.node);
    }
  }
  return nodes;
}

bool AgentRoster::has(const std::string& node) const {
  const auto found = agents_.find(node);
  return found != agents_.end() && found->second.ready;
}

// Silence means nothing if we were stopped ourselves. What is sent now may go into a connection
// that has ended.
void AgentRoster::wake_up(Instant now) {
  if (promised_ == kNever || promised_ == missed_) {
    return;
  }
  const Duration late = now - promised_;
  const bool stood_still = late > kStoodStill;
  missed_ = stood_still ? promised_ : kNever;
  for (auto& [name, agent] : agents_) {
    if (late > setting_.lease / 2) {
      agent.heard = now;
    }
    if (stood_still && setting_.orphan_timeout > Duration::zero()) {
      agent.reachable = false;
      ++agent.sign;
    }
  }
}

void AgentRoster::on(const AgentSpoke& event, Turn& turn) {
  const auto* hello = std::get_if<AgentHello>(&event.frame.message);
  if (closed_) {
    // It looks for the next launcher.
    if (const auto said = names_.extract(hello == nullptr ? 0 : hello->session)) {
      agents_.erase(said.mapped());
    }
    return;
  }
  if (hello != nullptr) {
    greet(event.route, *hello, turn);
    return;
  }
  const auto name = names_.find(event.frame.session);
  if (name == names_.end()) {
    if (is_ours(event.frame.session)) {
      turn.effects.push_back(SendToAgent{event.route, {event.frame.session, 0, Goodbye{}}});
    }
    return;
  }
  const auto at = agents_.find(name->second);
  PDJOB_CHECK(at != agents_.end(), name->second);
  // Another agent may guess a session's number. Only a Hello, with the secret number of the agent's
  // start, comes on another connection. What was sent on the one before may still be read.
  if (event.route == at->second.route || event.route == at->second.route_before) {
    hear(at, event.frame, turn);
  }
}

// An earlier launcher's session is not ours to end: its processes are adopted once the agent says
// Hello.
bool AgentRoster::is_ours(uint64_t session) const {
  return setting_.owner.empty() || (session >= setting_.first_session && session < next_session_);
}

std::string AgentRoster::name_of(const AgentHello& hello) const {
  return setting_.only ? setting_.only->name : setting_.cluster + "/" + hello.name;
}

std::string AgentRoster::objection(const AgentHello& hello) const {
  if (!is_plain(hello)) {
    return "its build, bounds, GPUs or labels hold characters that cannot be printed";
  }
  if (hello.build != setting_.build) {
    return "it is pdjob " + hello.build.substr(0, kNameBytesMax) + ", the launcher is " +
           setting_.build + ": install the same pdjob on all nodes";
  }
  if (agents_.size() >= setting_.nodes_max) {
    return "the cluster has " + std::to_string(setting_.nodes_max) + " nodes, which is the most";
  }
  return "";
}

// Only one agent of the launcher's own machine runs at a time, because it holds a lock. So a new
// one proves that the earlier one is dead.
bool AgentRoster::is_next(const AgentHello& hello) const {
  return setting_.only.has_value() && hello.instance != replaced_;
}

void AgentRoster::greet(const std::string& route, const AgentHello& hello, Turn& turn) {
  if (!is_node_name(hello.name)) {
    refuse(route, "an agent",
           "its name is not 1..63 letters, digits, -, _ and .: give it another by --name", turn);
    return;
  }
  const std::string name = name_of(hello);
  auto at = agents_.find(name);
  if (at != agents_.end() && at->second.instance != hello.instance && is_next(hello)) {
    replaced_ = at->second.instance;
    lose(at, "its agent died, and another one has come", turn);
    at = agents_.end();
  }
  if (at != agents_.end() && at->second.instance != hello.instance) {
    refuse(route, name,
           "an agent of this name is here already, or was until just now: give each node another "
           "--name",
           turn);
    return;
  }
  if (at != agents_.end() && (hello.session == at->second.session || !at->second.ready)) {
    Agent& agent = at->second;
    if (route != agent.route) {
      agent.route_before = std::exchange(agent.route, route);
    }
    agent.heard = turn.now;
    !agent.ready              ? welcome(agent, turn)
    : hello.sign < agent.sign ? ask(agent, turn)
                              : reach(agent, turn);
    return;
  }
  if (at != agents_.end()) {
    lose(at, "its agent lost the launcher, and came back", turn);
  }
  if (const std::string why = objection(hello); !why.empty()) {
    refuse(route, name, why, turn);
    return;
  }
  Agent& agent = agents_[name];
  agent.instance = hello.instance;
  agent.session = next_session_++;
  agent.route = route;
  agent.heard = turn.now;
  agent.node = {.name = name,
                .cores = hello.cores,
                .cores_bound = hello.cores_bound,
                .memory_bytes = hello.memory_bytes,
                .memory_bound = hello.memory_bound,
                .gpus = hello.gpus,
                .gpu_parts = hello.gpu_parts,
                .cluster = setting_.cluster,
                .labels = {hello.labels.begin(), hello.labels.end()},
                .topology = hello.topology};
  if (setting_.only) {
    agent.node = *setting_.only;
  }
  names_.emplace(agent.session, name);
  if (agents_.size() == 1) {
    beat_due_ = turn.now + kAgentBeat;
  }
  welcome(agent, turn);
}

// The first message of a session. It may go out again until the agent is ready, because nothing
// else goes there before.
void AgentRoster::welcome(Agent& agent, Turn& turn) {
  agent.sent = 0;
  agent.reachable = true;
  agent.unsent.clear();
  send(agent,
       Welcome{.job = setting_.job,
               .host = setting_.host,
               .lease_ms = milliseconds(setting_.lease),
               .orphan_timeout_ms = milliseconds(setting_.orphan_timeout),
               .owner = setting_.owner,
               .launcher = setting_.launcher},
       turn);
}

void AgentRoster::hear(Agents::iterator at, const AgentFrame& frame, Turn& turn) {
  Agent& agent = at->second;
  const bool beats = std::holds_alternative<Beat>(frame.message);
  if (frame.number > 0 && frame.number <= agent.received) {
    agent.heard = beats ? turn.now : agent.heard;
    return;  // Others were sent again, because their connection ended.
  }
  if (beats || frame.number != agent.received + 1) {
    lose(at, "messages of its agent were lost", turn);
    return;
  }
  ++agent.received;
  agent.heard = turn.now;
  if (const auto* ready = std::get_if<NodeReady>(&frame.message)) {
    if (!is_address(ready->host)) {
      lose(at, "its address is none", turn);
    } else if (setting_.owner.empty() && (!ready->running.empty() || !ready->doors.empty())) {
      lose(at, "it runs what no launcher can have left there", turn);
    } else if (!agent.ready) {
      agent.ready = true;
      agent.node.host = ready->host;
      turn.effects.push_back(NodeCame{agent.node, *ready});
    }
  } else if (const auto* leaving = std::get_if<NodeLeaving>(&frame.message)) {
    const std::string why = is_printable(leaving->why) ? leaving->why : "it does not say why";
    if (!agent.ready) {
      turn.effects.push_back(SayOfAgent{at->first + " cannot serve: " + why});
    }
    lose(at, why, turn);
  } else if (agent.ready) {
    turn.effects.push_back(NodeSaid{at->first, frame.message});
  }
}

// The agent may live and not know: the Goodbye, if it arrives, ends what runs there.
void AgentRoster::lose(Agents::iterator at, const std::string& why, Turn& turn) {
  turn.effects.push_back(SendToAgent{at->second.route, {at->second.session, 0, Goodbye{}}});
  if (at->second.ready) {
    turn.effects.push_back(NodeGone{at->first, why});
  }
  names_.erase(at->second.session);
  agents_.erase(at);
}

void AgentRoster::on(const AgentOrder& event, Turn& turn) {
  const auto at = agents_.find(event.node);
  if (at == agents_.end() || !at->second.ready) {
    return;
  }
  if (at->second.reachable) {
    send(at->second, event.message, turn);
  } else if (at->second.held.size() < kAgentHeldMax) {
    at->second.held.push_back(event.message);
  } else {
    lose(at, "too many orders wait for it", turn);
  }
}

void AgentRoster::ask(const Agent& agent, Turn& turn) {
  turn.effects.push_back(SendToAgent{agent.route, {agent.session, 0, SignAsked{agent.sign}}});
}

void AgentRoster::reach(Agent& agent, Turn& turn) {
  agent.reachable = true;
  take_back_unsent(agent);
  send(agent, Beat{agent.received}, turn);
  for (AgentMessage& order : std::exchange(agent.held, {})) {
    send(agent, std::move(order), turn);
  }
}

// They are the last ones: what is sent after a connection has ended cannot leave either.
void AgentRoster::take_back_unsent(Agent& agent) {
  std::map<uint64_t, AgentMessage> unsent = std::exchange(agent.unsent, {});
  if (unsent.empty() || unsent.begin()->first + unsent.size() != agent.sent + 1) {
    return;
  }
  agent.sent -= unsent.size();
  for (auto last = unsent.rbegin(); last != unsent.rend(); ++last) {
    if (!std::holds_alternative<Beat>(last->second)) {
      agent.held.push_front(std::move(last->second));
    }
  }
}

void AgentRoster::on(const SomeoneLeft& /*event*/, Turn& turn) {
  for (auto& [name, agent] : agents_) {
    if (agent.ready && agent.reachable) {
      send(agent, Beat{agent.received}, turn);
    }
  }
}

// With an orphan timeout, the agent keeps what it runs and may come back within the lease.
void AgentRoster::on(const AgentUnreachable& event, Turn& turn) {
  const auto name = names_.find(event.frame.session);
  if (name == names_.end()) {
    return;
  }
  const auto at = agents_.find(name->second);
  if (setting_.orphan_timeout == Duration::zero()) {
    lose(at, "the connection to its agent ended", turn);
    return;
  }
  Agent& agent = at->second;
  agent.reachable = false;
  if (event.frame.number > 0) {
    agent.unsent.emplace(event.frame.number, event.frame.message);
  }
}

void AgentRoster::on(const RosterClosed& event, Turn& turn) {
  const bool again = std::exchange(closed_, true);
  for (const auto& [name, agent] : agents_) {
    if (!again) {
      turn.effects.push_back(
          SendToAgent{agent.route, {agent.session, 0, Goodbye{milliseconds(event.keep)}}});
    }
  }
  if (event.keep == Duration::zero()) {
    agents_.clear();
    names_.clear();
  }
}

void AgentRoster::on(const TimePassed& /*event*/, Turn& turn) {
  if (turn.now < beat_due_) {
    return;
  }
  if (closed_) {
    beat_due_ = kNever;
    return;
  }
  beat_due_ = turn.now + kAgentBeat;
  for (auto at = agents_.begin(); at != agents_.end();) {
    const auto agent = at++;  // It may be erased.
    if (turn.now >= agent->second.heard + setting_.lease) {
      lose(agent, "its agent was silent", turn);
    } else if (agent->second.ready) {
      agent->second.reachable ? send(agent->second, Beat{agent->second.received}, turn)
                              : ask(agent->second, turn);
    }
  }
}

void AgentRoster::refuse(const std::string& route, const std::string& who,
                         const std::string& reason, Turn& turn) {
  turn.effects.push_back(SendToAgent{route, {.message = Refused{reason}}});
  turn.effects.push_back(SayOfAgent{who + " was refused: " + reason});
}

void AgentRoster::send(Agent& agent, AgentMessage message, Turn& turn) {
  turn.effects.push_back(
      SendToAgent{agent.route, {agent.session, ++agent.sent, std::move(message)}});
}

}  // namespace pdjob::launcher
