#include "tests/simulation/sim_agents.h"

#include <algorithm>
#include <optional>
#include <span>
#include <utility>
#include <variant>

#include "common/check.h"
#include "launcher/agents/agent_session.h"
#include "launcher/agents/agent_wire.h"
#include "net/loop/core_runner.h"

namespace pdjob::simulation {
namespace {

using launcher::AgentSession;

constexpr const char* kBuild = "simulated";

launcher::AgentHello hello_of(const std::string& name, const launcher::Node& node,
                              uint64_t instance) {
  return {.name = name,
          .instance = instance,
          .build = kBuild,
          .cores = node.cores,
          .memory_bytes = node.memory_bytes,
          .gpus = node.gpus,
          .labels = {node.labels.begin(), node.labels.end()}};
}

}  // namespace

// One life of an agent, and of the processes that it starts.
class SimAgents::Agent final : net::CurveClient::Handler, launcher::Cluster::Handler {
 public:
  Agent(SimAgents& agents, const std::string& name, const Machine& machine)
      : agents_(agents),
        node_(machine.node),
        process_("agent " + name,
                 {.loop = agents.loop_, .seed = agents.random_.next(), .host = node_.host}),
        core_(hello_of(name, node_, machine.instance)),
        runner_(process_, core_, *this),
        client_(agents.links_.connect(node_.cluster, process_, *this)) {}
  Agent(const Agent&) = delete;
  Agent& operator=(const Agent&) = delete;
  ~Agent() { process_.die(); }

  SimProcess& process() { return process_; }
  bool serves() const { return session_.has_value(); }

  using Runner = net::CoreRunner<Agent, AgentSession, launcher::AgentEvent, launcher::AgentEffect>;
  friend Runner;

 private:
  void on_bytes(const std::string& bytes) override {
    auto frame = launcher::decode_agent_frame(std::as_bytes(std::span(bytes.data(), bytes.size())));
    PDJOB_CHECK(frame, frame.error().message);
    runner_.submit(launcher::FrameArrived{std::move(*frame)});
  }
  void on_connected() override { runner_.submit(launcher::LauncherConnected{}); }
  void on_disconnected() override { runner_.submit(launcher::LauncherDisconnected{}); }

  void on_cluster_event(const launcher::ClusterEvent& event) override {
    std::visit([this](const auto& one) { tell(one); }, event);
  }
  void tell(const launcher::NodeJoined& /*event*/) {}
  void tell(const launcher::NodeLost& /*event*/) {}
  template <class Outcome>
  void tell(const Outcome& event) {
    runner_.submit(launcher::OutcomeKnown{event});
  }

  void stepped(const launcher::AgentEvent& /*event*/,
               const std::vector<launcher::AgentEffect>& /*effects*/) {}
  void carried_out(const launcher::AgentEvent& /*event*/) {}
  void carry_out(const launcher::SendFrame& effect) { client_->send(encode(effect.frame)); }
  void carry_out(const launcher::BeginSession& /*effect*/) {
    trace("begins a session");
    session_.emplace(
        agents_.loop_, agents_.machines_, agents_.random_.next(),
        [this](Instant when, SimLoop::Task task) { process_.post_at(when, std::move(task)); });
    session_->report_to(*this);
    session_->join(node_);
    runner_.submit(launcher::SessionBegan{{.host = node_.host, .running = {}, .doors = {}}});
  }
  void carry_out(const launcher::AdoptSession& /*effect*/) {
    trace("is adopted");
    const auto doors = session_->doors();
    runner_.submit(launcher::SessionBegan{{.host = node_.host,
                                           .running = session_->running(),
                                           .doors = {doors.begin(), doors.end()}}});
  }
  void carry_out(const launcher::EndSession& effect) {
    trace("ends everything: " + effect.why);
    session_.reset();
  }
  void carry_out(const launcher::CarryOut& effect) {
    std::visit([this](const auto& order) { obey(order); }, effect.order);
  }
  void carry_out(const launcher::SayRefused& effect) { trace("is refused: " + effect.reason); }
  void carry_out(const launcher::SayIgnored& /*effect*/) { trace("ignores an earlier launcher"); }
  void carry_out(const launcher::SayOrphaned& effect) { trace("is orphaned: " + effect.why); }
  void carry_out(const launcher::SayResumed& /*effect*/) { trace("goes on"); }

  void obey(const launcher::StartProcess& order) {
    auto spec = net::decode_spec(order.spec);
    PDJOB_CHECK(spec, spec.error().message);
    session_->spawn(
        {.node = node_.name, .incarnation = {order.incarnation}, .spec = std::move(*spec)});
  }
  void obey(const launcher::SignalProcess& order) {
    session_->signal(node_.name, {order.incarnation}, order.signal);
  }
  void obey(const launcher::LookAtProcess& order) {
    session_->look_at(node_.name, {order.incarnation});
  }
  void obey(const launcher::OpenDoor& order) {
    session_->open_door({.name = order.name,
                         .node = node_.name,
                         .host = order.host,
                         .port = order.port,
                         .use = order.shared ? net::PortUse::kShared : net::PortUse::kAlone});
  }
  void obey(const launcher::CloseDoor& order) { session_->close_door(order.name); }
  template <class Message>
  void obey(const Message& /*message*/) {}  // Nobody asks for logs.

  void trace(const std::string& what) { agents_.trace_("agent " + node_.name, what); }

  SimAgents& agents_;
  const launcher::Node node_;
  SimProcess process_;
  AgentSession core_;
  std::optional<SimCluster> session_;
  Runner runner_;
  std::unique_ptr<net::CurveClient> client_;
};

SimAgents::SimAgents(SimLoop& loop, SimMachines& machines, SimLinks& links, const Setting& setting,
                     uint64_t seed, Trace trace)
    : loop_(loop),
      machines_(machines),
      links_(links),
      setting_(setting),
      random_(seed),
      trace_(std::move(trace)) {}

SimAgents::~SimAgents() = default;

std::unique_ptr<launcher::Cluster> SimAgents::serve(const std::string& name, SimProcess& launcher,
                                                    uint64_t number,
                                                    std::optional<launcher::Node> only) {
  auto cluster = std::make_unique<launcher::AgentCluster>(
      launcher, launcher::RosterSetting{.cluster = name,
                                        .job = "simulated",
                                        .build = kBuild,
                                        .host = "",
                                        .lease = setting_.lease,
                                        .orphan_timeout = setting_.orphan_timeout,
                                        .owner = setting_.owner,
                                        .launcher = number,
                                        .only = std::move(only),
                                        .first_session = 1 + launcher.entropy() / 2});
  cluster->start(links_.serve(name, launcher, *cluster));
  return cluster;
}

void SimAgents::add(const launcher::Node& node) {
  by_name_[node.name].node = node;
  revive(node.name);
}

void SimAgents::revive(const std::string& node) {
  Machine& machine = by_name_.at(node);
  if (machine.agent == nullptr) {
    machine.instance = ++instances_;
    machine.agent = std::make_unique<Agent>(*this, node.substr(node.find('/') + 1), machine);
  }
}

void SimAgents::kill(const std::string& node) {
  Machine& machine = by_name_.at(node);
  machine.agent.reset();
  machine.stopped = false;
  trace_("agent " + node, "is killed");
}

void SimAgents::lose_power(const std::string& node) {
  if (const auto& agent = by_name_.at(node).agent) {
    links_.silence(agent->process());
  }
  kill(node);
}

void SimAgents::freeze(const std::string& node, Duration duration) {
  Machine& machine = by_name_.at(node);
  if (machine.agent == nullptr || machine.stopped) {
    return;
  }
  machine.stopped = true;
  machine.agent->process().stop();
  loop_.after(duration, [this, &machine, frozen = machine.instance] {
    if (machine.instance == frozen && machine.stopped) {
      machine.stopped = false;
      machine.awake_since = loop_.now();
      machine.agent->process().go_on();
    }
  });
}

void SimAgents::go_on() {
  for (auto& [name, machine] : by_name_) {
    if (std::exchange(machine.stopped, false)) {
      machine.awake_since = loop_.now();
      machine.agent->process().go_on();
    }
  }
}

Duration SimAgents::outlives() const {
  return 2 * setting_.lease + setting_.orphan_timeout + 2 * launcher::kAgentBeat;
}

Instant SimAgents::awake_since(const std::string& node) const {
  const auto found = by_name_.find(node);
  return found == by_name_.end() ? Instant()
         : found->second.stopped ? kNever
                                 : found->second.awake_since;
}

bool SimAgents::idle() const {
  return std::ranges::none_of(by_name_, [](const auto& each) {
    return each.second.agent != nullptr && each.second.agent->serves();
  });
}

}  // namespace pdjob::simulation
