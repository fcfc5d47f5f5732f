#include "launcher/job_clusters.h"

#include <algorithm>
#include <array>
#include <csignal>
#include <utility>

#include "common/check.h"
#include "common/crypto/job_keys.h"
#include "common/random.h"
#include "launcher/agents/agent_cluster.h"
#include "launcher/agents/build_version.h"
#include "launcher/agents/node_address.h"
#include "launcher/clusters/local_cluster.h"
#include "launcher/clusters/merged_cluster.h"
#include "launcher/ray_clusters.h"
#include "launcher/run/patiently.h"
#include "net/http/http_client.h"
#include "net/loop/port_owner.h"
#include "net/loop/signals.h"

namespace pdjob::launcher {

namespace {

// A session's number tells one run of a launcher from another; agents ignore number 0.
uint64_t first_session() { return (entropy() >> 1) + 1; }

constexpr Duration kPortComesFree = std::chrono::seconds(5);
constexpr Duration kLocalAgentJoins = std::chrono::seconds(20);
// This machine's agent is known to be dead by its lock, and to stand still by looks at it. So its
// silence on a busy machine costs nothing.
constexpr Duration kLocalAgentLease = std::chrono::seconds(60);

Result<std::unique_ptr<Cluster>> open_agents(net::EventLoop& loop, const JobConfig& config,
                                             const ClusterConfig& cluster, const JobRun* run) {
  PDJOB_TRY(const std::string key, read_key_file(cluster.key_file));
  PDJOB_TRY(const net::HttpAddress listen, net::parse_http_address(cluster.listen));
  const AgentCluster::Options options{
      .roster = {.cluster = cluster.name,
                 .job = config.name,
                 .build = build_version(),
                 .host = cluster.host,
                 .lease = cluster.lease,
                 .orphan_timeout = config.launcher.orphan_timeout,
                 .owner = run == nullptr ? "" : run->owner(),
                 .launcher = run == nullptr ? 0 : run->ledger().launcher,
                 .first_session = first_session()},
      .host = listen.host,
      .port = listen.port,
      .keys = AgentKeys::of(key)};
  auto opened = AgentCluster::open(loop, options);
  if (!opened) {
    return Error{opened.error().code, "cluster " + cluster.name + ": " + opened.error().message};
  }
  return std::unique_ptr<Cluster>(std::move(*opened));
}

using Clusters = std::vector<std::unique_ptr<Cluster>>;

// "pdjob, pid 4711" or "job night, pid 4711": who listens there.
std::string owner_of(const JobConfig& config, uint16_t port) {
  auto owner = net::port_owner(port);
  if (!owner) {
    return "another process";
  }
  for (const std::string& job : JobFolder::running(config.launcher.state_dir)) {
    const auto launcher = JobFolder::find(config.launcher.state_dir, job);
    if (launcher && launcher->pid == owner->pid) {
      owner->name = "job " + job;
    }
  }
  return owner->text();
}

// Agents join the one launcher that listens, so an address in use means that they serve another
// job. An empty text: it is free.
std::string taken_by(const JobConfig& config, const ClusterConfig& cluster) {
  const auto listen = net::parse_http_address(cluster.listen);
  const auto probe = listen && listen->port != 0 ? net::listen_on(listen->host, listen->port)
                                                 : Result<net::Fd>(net::Fd());
  if (probe || probe.error().code != ErrorCode::kOverloaded) {
    return "";
  }
  return "the agents of cluster " + cluster.name + " join at " + cluster.listen +
         ", which is in use by " + owner_of(config, listen->port);
}

// Opens all clusters of agents or none, in the order of their addresses. So of two jobs that want
// the same ones, one gets all that it wants. kOverloaded: an address is in use.
Result<Clusters> open_all_agents(net::EventLoop& loop, const JobConfig& config, const JobRun* run) {
  std::vector<const ClusterConfig*> wanted;
  for (const ClusterConfig& cluster : config.clusters) {
    if (cluster.kind == ClusterKind::kAgents) {
      if (const std::string taken = taken_by(config, cluster); !taken.empty()) {
        return Error{ErrorCode::kOverloaded, taken};
      }
      wanted.push_back(&cluster);
    }
  }
  std::ranges::sort(wanted, {}, [](const ClusterConfig* one) { return one->listen; });
  Clusters clusters;
  for (const ClusterConfig* cluster : wanted) {
    auto agents = open_agents(loop, config, *cluster, run);
    if (!agents) {
      const std::string taken = taken_by(config, *cluster);  // Since the first look.
      return taken.empty() ? agents.error() : Error{ErrorCode::kOverloaded, taken};
    }
    clusters.push_back(std::move(*agents));
  }
  return clusters;
}

// Opens the clusters of agents as soon as no other job has any of them. It holds none meanwhile, so
// jobs that wait never wait for each other.
class AddressWait {
 public:
  AddressWait(net::EventLoop& loop, const JobConfig& config, const JobRun& run,
              const std::function<void(const std::string&)>& progress)
      : loop_(loop), config_(config), run_(run), progress_(progress) {}

  // kTimeout: the longest `wait` of the clusters has passed. kCancelled: a signal came.
  Result<Clusters> run(Duration at_most) {
    if (attempt() || at_most == Duration::zero()) {
      return std::move(opened_);
    }
    const net::StopSignals signals(loop_, std::array{SIGTERM, SIGINT, SIGHUP}, [this](int signal) {
      give_up({ErrorCode::kCancelled,
               "signal " + std::to_string(signal) + " while other jobs had the agents"});
    });
    const net::TimerId deadline = loop_.call_at(loop_.now() + at_most, [this] {
      give_up({ErrorCode::kTimeout, taken_ + ", and the job has waited long enough"});
    });
    again();
    loop_.run();
    loop_.cancel(deadline);
    loop_.cancel(next_);
    if (given_up_) {
      return *std::move(given_up_);
    }
    return std::move(opened_);
  }

 private:
  // True: there is nothing to wait for.
  bool attempt() {
    opened_ = open_all_agents(loop_, config_, &run_);
    return opened_ || opened_.error().code != ErrorCode::kOverloaded;
  }

  void give_up(Error why) {
    given_up_ = std::move(why);
    loop_.stop();
  }

  void again() {
    taken_ = opened_.error().message;
    progress_("waiting for agents: " + taken_);
    // Each attempt looks into /proc. An adopted job should not wait long.
    const auto pause = std::chrono::milliseconds(run_.adopts() ? 100 : 500);
    next_ = loop_.call_at(loop_.now() + pause, [this] {
      if (attempt()) {
        loop_.stop();
      } else {
        again();
      }
    });
  }

  net::EventLoop& loop_;
  const JobConfig& config_;
  const JobRun& run_;
  const std::function<void(const std::string&)>& progress_;
  net::TimerId next_{};
  std::string taken_;  // What it waits for.
  Result<Clusters> opened_ = Clusters{};
  std::optional<Error> given_up_;
};

Result<Clusters> add_ray(net::EventLoop& loop, const JobConfig& config, LogFolder* logs,
                         Clusters clusters) {
  PDJOB_TRY(auto ray, open_ray(loop, config, logs));
  if (ray != nullptr) {
    clusters.push_back(std::move(ray));
  }
  return clusters;
}

Duration longest_wait_of(const JobConfig& config) {
  Duration longest{};
  for (const ClusterConfig& cluster : config.clusters) {
    longest = std::max(longest, cluster.kind == ClusterKind::kLocal ? Duration{} : cluster.wait);
  }
  return longest;
}

std::string local_agent_key(const JobRun& run) {
  return run.ledger().root_key().derive("local agent");
}

// The launcher's half of this machine's agent, which joins at a port of its own.
Result<std::unique_ptr<Cluster>> open_local_agents(net::EventLoop& loop, const JobConfig& config,
                                                   const Node& here, JobRun& run) {
  const AgentCluster::Options options{.roster = {.cluster = here.cluster,
                                                 .job = config.name,
                                                 .build = build_version(),
                                                 .lease = kLocalAgentLease,
                                                 .orphan_timeout = config.launcher.orphan_timeout,
                                                 .owner = run.owner(),
                                                 .launcher = run.ledger().launcher,
                                                 .only = here,
                                                 .first_session = first_session()},
                                      .host = "127.0.0.1",
                                      .port = run.ledger().agent_port,
                                      .use = net::PortUse::kShared,
                                      .keys = AgentKeys::of(local_agent_key(run))};
  const bool patient = run.ledger().agent_port != 0;
  PDJOB_TRY(auto opened, patiently(patient ? kPortComesFree : Duration{},
                                   [&] { return AgentCluster::open(loop, options); }));
  run.ledger().agent_port = net::port_of(opened->endpoint());
  run.save();
  return std::unique_ptr<Cluster>(std::move(opened));
}

// Where nobody is left who knows the ports of an earlier launcher, others may have taken them.
void forget_unknown_ports(const JobFolder& folder, JobLedger& ledger) {
  if (!LocalAgent::runs(folder.path())) {
    ledger.agent_port = 0;
    ledger.control_port = has_remote_nodes(ledger) ? ledger.control_port : 0;
  }
}

// The agent that starts holds the port. The launcher listens there later.
Result<net::Fd> choose_control_port(const JobConfig& config, JobLedger& ledger) {
  PDJOB_TRY(net::Fd held, hold_port({config.launcher.control_host, ledger.control_port}));
  ledger.control_port = net::local_port(held.get());
  return held;
}

Result<std::unique_ptr<LocalAgent>> start_local_agent(net::EventLoop& loop, const JobConfig& config,
                                                      const Node& here, JobFolder& folder,
                                                      const JobRun& run) {
  PDJOB_TRY(net::Fd log, folder.logs().open("agent"));
  const JobLedger& ledger = run.ledger();
  return LocalAgent::open(loop,
                          {.folder = folder.path(),
                           .endpoint = "127.0.0.1:" + std::to_string(ledger.agent_port),
                           .key = local_agent_key(run),
                           .host = here.host,
                           .log_dir = folder.logs().path() + "/" + kLocalLogs,
                           .cores = here.cores,
                           .ports = {{"127.0.0.1", ledger.agent_port},
                                     {config.launcher.control_host, ledger.control_port}}},
                          std::move(log));
}

class NodeWait final : Cluster::Handler {
 public:
  NodeWait(net::EventLoop& loop, Cluster& cluster, const JobConfig& config,
           const NodeWaiting& waiting)
      : loop_(loop), cluster_(cluster), config_(config), waiting_(waiting) {
    cluster.report_to(*this);
  }

  Status run() {
    if (lack().empty()) {
      return ok();
    }
    const net::StopSignals signals(loop_, std::array{SIGTERM, SIGINT, SIGHUP}, [this](int signal) {
      outcome_ = Error{ErrorCode::kCancelled,
                       "signal " + std::to_string(signal) + " before all nodes had joined"};
      loop_.stop();
    });
    const Instant begin = waiting_.since.value_or(loop_.now());
    const net::TimerId timer = loop_.call_at(begin + longest_wait(), [this] {
      outcome_ = Error{ErrorCode::kTimeout, lack() + ", and the job has waited long enough"};
      loop_.stop();
    });
    waiting_.progress("waiting for nodes: " + lack());
    loop_.run();
    loop_.cancel(timer);
    return outcome_;
  }

 private:
  void on_cluster_event(const ClusterEvent& /*event*/) override {
    if (const std::string text = lack(); text.empty()) {
      loop_.stop();
    } else {
      waiting_.progress("waiting for nodes: " + text);
    }
  }

  // Empty: the job can start. Without agents nobody can come, so the plan itself tells.
  std::string lack() const {
    if (waits_for_local() && std::ranges::none_of(cluster_.nodes(), [](const Node& node) {
          return node.name == LocalCluster::kNodeName;
        })) {
      return "this machine's agent has not joined yet (its log is agent.log)";
    }
    std::string text = missing_nodes(config_.clusters, cluster_.nodes());
    if (text.empty() && longest_wait() > Duration::zero()) {
      const Status fits = waiting_.fits(cluster_.nodes());
      const bool later = !fits && fits.error().code == ErrorCode::kUnavailable;
      text = later ? fits.error().message : "";
    }
    return text;
  }

  Duration longest_wait() const {
    return std::max(waits_for_local() ? kLocalAgentJoins : Duration{}, longest_wait_of(config_));
  }

  // `pdjob plan` starts no agent.
  bool waits_for_local() const { return waiting_.local_agent && config_.launcher.lasts(); }

  net::EventLoop& loop_;
  Cluster& cluster_;
  const JobConfig& config_;
  const NodeWaiting& waiting_;
  Status outcome_ = ok();
};

}  // namespace

// Routers run here, whether workers do or not. Workers of other nodes must reach those here.
Result<Node> local_node(const JobConfig& config) {
  if (config.clusters.empty()) {
    return LocalCluster::this_node();
  }
  const auto local = std::ranges::find(config.clusters, ClusterKind::kLocal, &ClusterConfig::kind);
  if (local == config.clusters.end()) {
    Node node = LocalCluster::this_node();
    node.host = config.launcher.control_host;
    node.routers_only = true;
    return node;
  }
  const std::string place = "clusters." + local->name;
  Node node = LocalCluster::this_node({.cores = local->cpus,
                                       .cores_by = place + ".cpus",
                                       .memory_bytes = local->memory_bytes,
                                       .memory_by = place + ".memory_bytes"});
  node.host = config.launcher.control_host;
  node.cluster = local->name;
  if (!local->host.empty()) {
    PDJOB_TRY(node.host, address_by_choice(local->host));
  }
  return node;
}

void JobClusters::leave_warm(net::EventLoop& loop, Duration time) const {
  constexpr Duration kAgentsHear = std::chrono::seconds(5);
  constexpr Duration kLook = std::chrono::milliseconds(2);
  cluster->keep_warm(time);
  const Instant end = loop.now() + kAgentsHear;
  net::TimerId timer;
  const std::function<void()> look = [&] {
    if (cluster->left_warm() || loop.now() >= end) {
      loop.stop();
    } else {
      timer = loop.call_at(loop.now() + kLook, look);
    }
  };
  timer = loop.call_at(loop.now(), look);
  loop.run();
  loop.cancel(timer);
  if (agent != nullptr) {
    agent->leave();
  }
}

Result<JobClusters> open_clusters(net::EventLoop& loop, const JobConfig& config, JobFolder& folder,
                                  JobRun& run,
                                  const std::function<void(const std::string&)>& progress) {
  PDJOB_TRY(Node here, local_node(config));
  const Duration at_most = run.adopts() ? kPortComesFree : longest_wait_of(config);
  PDJOB_TRY(auto agents, AddressWait(loop, config, run, progress).run(at_most));
  PDJOB_TRY(auto clusters, add_ray(loop, config, &folder.logs(), std::move(agents)));
  JobClusters opened;
  if (run.lasts()) {
    forget_unknown_ports(folder, run.ledger());
    PDJOB_TRY(const net::Fd control,
              patiently(kPortComesFree, [&] { return choose_control_port(config, run.ledger()); }));
    PDJOB_TRY(auto own, open_local_agents(loop, config, here, run));
    PDJOB_TRY(opened.agent, start_local_agent(loop, config, here, folder, run));
    clusters.insert(clusters.begin(), std::move(own));
  } else {
    clusters.insert(clusters.begin(), std::make_unique<LocalCluster>(
                                          loop, LocalCluster::Options{.logs = folder.logs(),
                                                                      .node = std::move(here)}));
  }
  opened.cluster = clusters.size() == 1
                       ? std::move(clusters.front())
                       : std::make_unique<MergedCluster>(loop, std::move(clusters));
  return opened;
}

Result<std::vector<Node>> nodes_for_plan(net::EventLoop& loop, const JobConfig& config,
                                         const NodeWaiting& waiting) {
  PDJOB_TRY(Node here, local_node(config));
  PDJOB_TRY(auto agents, open_all_agents(loop, config, nullptr));
  PDJOB_TRY(auto clusters, add_ray(loop, config, nullptr, std::move(agents)));
  MergedCluster cluster(loop, std::move(clusters));
  const auto with_here = [&here](std::vector<Node> nodes) {
    nodes.insert(nodes.begin(), here);
    return nodes;
  };
  const NodeWaiting also_here{
      .fits = [&](const std::vector<Node>& nodes) { return waiting.fits(with_here(nodes)); },
      .progress = waiting.progress};
  PDJOB_TRY_STATUS(wait_for_nodes(loop, cluster, config, also_here));
  return with_here(cluster.nodes());
}

bool has_remote_nodes(const JobLedger& ledger) {
  return std::ranges::any_of(ledger.job.nodes,
                             [](const Node& node) { return node.name != LocalCluster::kNodeName; });
}

std::string missing_nodes(const std::vector<ClusterConfig>& clusters,
                          const std::vector<Node>& nodes) {
  std::string text;
  for (const ClusterConfig& cluster : clusters) {
    uint32_t there = 0;
    std::string names;
    for (const Node& node : nodes) {
      if (node.cluster == cluster.name) {
        ++there;
        names += (names.empty() ? " (" : ", ") + node.name;
      }
    }
    if (there < cluster.nodes_awaited()) {
      text += (text.empty() ? "" : "; ") + ("cluster " + cluster.name) + ": " +
              std::to_string(there) + " of " + std::to_string(cluster.nodes_awaited()) +
              " nodes joined" + (cluster.kind == ClusterKind::kRay ? "" : " at " + cluster.listen) +
              names + (names.empty() ? "" : ")");
    }
  }
  return text;
}

Status wait_for_nodes(net::EventLoop& loop, Cluster& cluster, const JobConfig& config,
                      const NodeWaiting& waiting) {
  return NodeWait(loop, cluster, config, waiting).run();
}

}  // namespace pdjob::launcher
