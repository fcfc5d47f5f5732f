#include "launcher/ray/ray_cluster.h"

#include <utility>
#include <variant>

#include "common/log.h"

namespace pdjob::launcher {
namespace {

constexpr Duration kCloseLooks = std::chrono::milliseconds(100);  // How often time is looked at.

// Nodes are called "b/0", slots "b.0", because Ray's labels have no slash.
std::string slot_of(std::string node) {
  if (const size_t slash = node.find('/'); slash != std::string::npos) {
    node[slash] = '.';
  }
  return node;
}

std::string number_of(const std::string& slot) { return slot.substr(slot.rfind('.') + 1); }

}  // namespace

RayCluster::RayCluster(net::EventLoop& loop, std::unique_ptr<Cluster> agents, Options options)
    : loop_(loop),
      options_(std::move(options)),
      session_(options_.setting),
      runner_(loop, session_, *this),
      agents_(std::move(agents)) {
  agents_->report_to(*this);
  runner_.submit(TimePassed{});
}

RayCluster::~RayCluster() {
  agents_.reset();  // Before their reservations go.
  handler_ = nullptr;
  runner_.submit(RayCloseAsked{});
  while (!closed_) {  // The core has a deadline for it.
    if (shim_ != nullptr) {
      shim_->wait(kCloseLooks);
    }
    runner_.submit(TimePassed{});
  }
}

void RayCluster::on_cluster_event(const ClusterEvent& event) {
  if (const auto* joined = std::get_if<NodeJoined>(&event)) {
    runner_.submit(AgentCame{slot_of(joined->node.name)});
  } else if (const auto* lost = std::get_if<NodeLost>(&event)) {
    runner_.submit(AgentLost{slot_of(lost->name)});
  }
  if (handler_ != nullptr) {
    handler_->on_cluster_event(event);
  }
}

void RayCluster::on_shim_line(const ShimLine& line) { runner_.submit(ShimSaid{line}); }

void RayCluster::on_shim_gone(const std::string& why) { runner_.submit(ShimGone{why}); }

void RayCluster::carry_out(const StartShim& /*effect*/) {
  auto started = ShimProcess::start(loop_, options_.shim, *this);
  if (started) {
    shim_ = std::move(*started);
  } else {
    runner_.submit(ShimGone{started.error().message});
  }
}

void RayCluster::carry_out(const EndShim& /*effect*/) {
  if (shim_ != nullptr) {
    shim_->kill();
    ended_shim_ = std::move(shim_);
  }
}

void RayCluster::carry_out(const AskShim& effect) {
  if (shim_ != nullptr) {
    shim_->send(effect.id, effect.request);
  }
}

void RayCluster::carry_out(const StartSlotAgent& effect) {
  const RayAgentSetting& agent = options_.agents.at(effect.cluster);
  const std::string folder = "~/.local/state/pdjob/ray/" + options_.setting.job + "-" + effect.slot;
  std::vector<std::string> arguments = {"agent",
                                        "--join",
                                        agent.endpoint,
                                        "--key-fd",
                                        "0",
                                        "--name",
                                        number_of(effect.slot),
                                        "--log-dir",
                                        folder,
                                        "--cores",
                                        std::to_string(agent.share.cpus),
                                        "--granted"};
  if (agent.share.memory_bytes > 0) {
    arguments.insert(arguments.end(), {"--memory", std::to_string(agent.share.memory_bytes)});
  }
  carry_out(AskShim{effect.id, StartAgent{.slot = effect.slot,
                                          .reservation = effect.reservation,
                                          .bundle = effect.bundle,
                                          .program = agent.program,
                                          .ship = agent.ship,
                                          .arguments = std::move(arguments),
                                          .secret = agent.key,
                                          .log = folder + "/agent.log"}});
}

void RayCluster::carry_out(const SayOfRay& effect) {
  effect.warning ? log::warn(effect.text) : log::info(effect.text);
}

void RayCluster::carry_out(const RayClosed& effect) {
  if (!effect.clean) {
    log::warn("Ray: not everything could be given back; the job's keeper there does it within " +
              std::to_string(static_cast<int>(seconds(options_.setting.lease))) + " s");
  }
  closed_ = true;
}

}  // namespace pdjob::launcher
