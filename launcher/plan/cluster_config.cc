#include "launcher/plan/cluster_config.h"

#include <algorithm>

#include "launcher/plan/model_config.h"
#include "net/http/http_client.h"
#include "net/loop/socket.h"

namespace pdjob::launcher {

namespace {

constexpr uint32_t kNodesMax = 4096;
constexpr size_t kHostBytesMax = 63;

bool is_numeric(const std::string& host) {
  return net::resolve(host, 0, net::HostForm::kNumeric).has_value();
}

void read_cluster(ConfigReader& in, ClusterConfig& config) {
  using std::chrono::hours;
  using std::chrono::seconds;
  in.field("kind", config.kind, {{"local", ClusterKind::kLocal}, {"agents", ClusterKind::kAgents}},
           {.doc = "local: this machine. agents: machines on which `pdjob agent --join` runs."});
  in.field("host", config.host,
           {.doc = "Which address of a node its workers listen on: an address, the name of an "
                   "interface, or a network such as 10.77.0.0/24. Default: local takes "
                   "launcher.control_host, and an agent the address from which it reaches the "
                   "launcher."});
  in.field("listen", config.listen,
           {.doc = "For kind agents: HOST:PORT of this machine where agents join. They prove "
                   "themselves with the key."});
  in.path("key_file", config.key_file,
          {.doc = "For kind agents: holds the key that this job and the agents share; only its "
                  "owner may read it. `pdjob agent --new-key FILE` makes one."});
  in.field("nodes", config.nodes,
           {.doc = "For kind agents: a starting job waits for this many nodes."}, {0, kNodesMax});
  in.field("wait", config.wait,
           {.doc = "For kind agents: how long a starting job waits for them; then it fails."},
           {seconds(0), hours(24 * 7)});
  in.field("lease", config.lease,
           {.doc = "For kind agents: a node that is silent this long is lost, and a launcher that "
                   "is, too."},
           {seconds(1), hours(1)});
}

void check_agents(ConfigReader& in, const ClusterConfig& config) {
  const auto address = net::parse_http_address(config.listen);
  if (!address || address->port == 0 || !is_numeric(address->host)) {
    in.fail("listen", "must be ADDRESS:PORT, such as 10.0.0.1:7700, got " +
                          (config.listen.empty() ? "nothing" : config.listen));
  }
  if (config.key_file.empty()) {
    in.fail("key_file", "is missing: make one with `pdjob agent --new-key FILE`");
  }
}

void check_local(ConfigReader& in) {
  for (const char* key : {"listen", "key_file", "nodes", "wait", "lease"}) {
    if (in.has(key)) {
      in.fail(key, "is for kind agents only");
    }
  }
}

}  // namespace

void read_clusters(ConfigReader& in, std::vector<ClusterConfig>& clusters) {
  in.named_sections(
      "clusters",
      {.doc = "The machines of the job, by names that you choose. Without this section: this "
              "machine. With it, workers run only on what it lists; routers run here."},
      [&](const std::string& name, ConfigReader& section) {
        ClusterConfig& config = clusters.emplace_back();
        config.name = name;
        read_cluster(section, config);
        if (!is_job_name(name)) {
          section.fail("",
                       "a cluster's name must be 1..63 of a-z, 0-9, - and _, and not begin "
                       "with -");
        }
        if (config.host.size() > kHostBytesMax) {
          section.fail("host", "must have at most 63 bytes");
        }
        if (config.kind == ClusterKind::kAgents) {
          check_agents(section, config);
        } else {
          check_local(section);
        }
        const auto local = std::ranges::count(clusters, ClusterKind::kLocal, &ClusterConfig::kind);
        if (config.kind == ClusterKind::kLocal && local > 1) {
          section.fail("kind", "another cluster is local, too");
        }
      });
}

bool runs_workers_here(const std::vector<ClusterConfig>& clusters) {
  return clusters.empty() ||
         std::ranges::count(clusters, ClusterKind::kLocal, &ClusterConfig::kind) > 0;
}

std::string address_for_nodes(const std::vector<ClusterConfig>& clusters) {
  for (const ClusterConfig& cluster : clusters) {
    if (cluster.kind == ClusterKind::kAgents) {
      const auto address = net::parse_http_address(cluster.listen);
      if (!address || !is_numeric(address->host)) {
        break;  // That error is reported.
      }
      return address->host == "0.0.0.0" || address->host == "::" ? "" : address->host;
    }
  }
  return "127.0.0.1";
}

}  // namespace pdjob::launcher
