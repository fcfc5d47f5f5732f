#include "launcher/plan/cluster_config.h"

#include <algorithm>

#include "common/config/named_items.h"
#include "launcher/placement/node.h"
#include "launcher/plan/model_config.h"
#include "net/http/http_client.h"
#include "net/loop/socket.h"

namespace pdjob::launcher {

namespace {

constexpr Duration kRayWait = std::chrono::minutes(5);  // It starts processes of its own.
constexpr size_t kHostBytesMax = 63;
constexpr uint32_t kCpusMax = 65536;
constexpr uint32_t kGpusMax = 1024;

bool is_address(const std::string& text) {
  const auto address = net::parse_http_address(text);
  return address && address->port != 0;
}

bool is_numeric(const std::string& host) {
  return net::resolve(host, 0, net::HostForm::kNumeric).has_value();
}

enum class RayPart { kHome, kGuest };

void read_ray(ConfigReader& in, RayConfig& config) {
  in.field("address", config.address,
           {.doc = "For kind ray, the first one, which is the home of the others: HOST:PORT of its "
                   "control store. The launcher must run on a node of this Ray cluster."});
  in.field("dashboard", config.dashboard,
           {.doc = "For kind ray, all but the first: http://HOST:PORT of its dashboard."});
  in.field("python", config.python,
           {.doc = "For kind ray: the Python that has Ray. Of the home cluster: here. Of others: "
                   "on their nodes. All must have the same Ray, and the same minor version of "
                   "Python."});
  in.field(
      "program", config.program,
      {.doc = "For kind ray: where pdjob is on the nodes. Default: the launcher sends itself to "
              "nodes that lack it."});
  in.path("token_file", config.token_file,
          {.doc = "For kind ray with token authentication: holds the cluster's token, on this "
                  "machine."});
  in.field("home_token_file", config.home_token_file,
           {.doc = "For kind ray, all but the first: the file on its nodes that holds the token of "
                   "the home cluster. Default: both clusters have the same token, or none."});
  in.field("nodes_min", config.nodes_min,
           {.doc = "For kind ray: a starting job waits for this many of its nodes, and takes them "
                   "all together or none; the others may come later. 0: for all."},
           {0, kClusterNodesMax});
  in.field("gpus", config.gpus, {.doc = "For kind ray: whole GPUs that are taken on each node."},
           {0, kGpusMax});
}

void check_ray(ConfigReader& in, const RayConfig& config, RayPart part, uint32_t nodes) {
  if (part == RayPart::kHome) {
    if (!is_address(config.address)) {
      in.fail("address",
              "must be HOST:PORT of the cluster's control store, such as "
              "10.0.0.1:6379: the first cluster of kind ray is the home of the others");
    }
    for (const char* key : {"dashboard", "home_token_file"}) {
      if (in.has(key)) {
        in.fail(key, "is for the other clusters of kind ray: the first one is their home");
      }
    }
  } else {
    const std::string scheme = "http://";
    if (!config.dashboard.starts_with(scheme) ||
        !is_address(config.dashboard.substr(scheme.size()))) {
      in.fail("dashboard", "must be http://HOST:PORT, such as http://10.0.0.2:8265");
    }
    if (in.has("address")) {
      in.fail("address", "is for the first cluster of kind ray, which is the home of the others");
    }
  }
  if (config.python.empty()) {
    in.fail("python", "must name an interpreter");
  }
  if (config.nodes_min > nodes) {
    in.fail("nodes_min", "must not be above nodes");
  }
}

void read_cluster(ConfigReader& in, ClusterConfig& config) {
  using std::chrono::hours;
  using std::chrono::seconds;
  in.field("kind", config.kind,
           {{"local", ClusterKind::kLocal},
            {"agents", ClusterKind::kAgents},
            {"ray", ClusterKind::kRay}},
           {.doc = "local: this machine. agents: machines on which `pdjob agent --join` runs. ray: "
                   "nodes of a Ray cluster; several such clusters are merged into one."});
  if (config.kind == ClusterKind::kRay) {
    config.wait = kRayWait;
    config.cpus = 1;
  }
  in.field("host", config.host,
           {.doc = "Which address of a node its workers listen on: an address, the name of an "
                   "interface, or a network such as 10.77.0.0/24. Default: local takes "
                   "launcher.control_host, and an agent the address from which it reaches the "
                   "launcher."});
  in.field(
      "listen", config.listen,
      {.doc = "For kinds agents and ray: HOST:PORT of this machine where agents join. They prove "
              "themselves with the key."});
  in.path("key_file", config.key_file,
          {.doc = "For kind agents: holds the key that this job and the agents share; only its "
                  "owner may read it. `pdjob agent --new-key FILE` makes one."});
  in.field("nodes", config.nodes,
           {.doc = "For kinds agents and ray: a starting job waits for this many nodes. Of a Ray "
                   "cluster, they are taken."},
           {0, kClusterNodesMax});
  in.field(
      "wait", config.wait,
      {.doc = "For kinds agents and ray: how long a starting job waits for them; then it fails. "
              "Default for kind ray: 5m."},
      {seconds(0), hours(24 * 7)});
  in.field(
      "lease", config.lease,
      {.doc =
           "For kinds agents and ray: a node that is silent this long is lost, and a launcher that "
           "is, too."},
      {seconds(1), hours(1)});
  in.field("cpus", config.cpus,
           {.doc = "For kind local: how many cores the job may use at most; 0: all that this "
                   "process may use. For kind ray: CPUs that are taken on each node; default 1."},
           {0, kCpusMax});
  in.field("memory_bytes", config.memory_bytes,
           {.doc = "For kind local: how much memory the job may use at most; 0: all that this "
                   "process may use. For kind ray: memory that is taken on each node; 0: Ray is "
                   "not asked for any.",
            .unit = "bytes"});
  read_ray(in, config.ray);
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

void refuse_keys(ConfigReader& in, const std::vector<const char*>& keys, const char* why) {
  for (const char* key : keys) {
    if (in.has(key)) {
      in.fail(key, why);
    }
  }
}

void refuse_ray(ConfigReader& in) {
  refuse_keys(in,
              {"address", "dashboard", "python", "program", "token_file", "home_token_file",
               "nodes_min", "gpus"},
              "is for kind ray only");
}

void check_local(ConfigReader& in) {
  refuse_keys(in, {"listen", "nodes", "wait", "lease"}, "is for kinds agents and ray only");
  refuse_keys(in, {"key_file"}, "is for kind agents only");
  refuse_ray(in);
}

void check_ray_cluster(ConfigReader& in, const ClusterConfig& config, RayPart part) {
  refuse_keys(in, {"key_file"}, "is for kind agents only: agents on Ray get a key of their own");
  const auto address = net::parse_http_address(config.listen);
  const bool guest_without = part == RayPart::kGuest && config.listen.empty();
  if (!guest_without && (!address || !is_numeric(address->host))) {
    in.fail("listen",
            "must be ADDRESS:PORT of this machine where the agents of its nodes join, "
            "such as 10.0.0.1:0, got " +
                (config.listen.empty() ? "nothing" : config.listen));
  }
  if (config.nodes == 0) {
    in.fail("nodes", "must be at least 1 for kind ray");
  }
  if (config.cpus == 0) {
    in.fail("cpus", "must be at least 1 for kind ray");
  }
  check_ray(in, config.ray, part, config.nodes);
}

void check_cluster(ConfigReader& in, const std::vector<ClusterConfig>& clusters) {
  const ClusterConfig& config = clusters.back();
  switch (config.kind) {
    case ClusterKind::kLocal:
      return check_local(in);
    case ClusterKind::kAgents:
      refuse_ray(in);
      refuse_keys(in, {"cpus", "memory_bytes"},
                  "is for kinds local and ray only: `pdjob agent` has --cores and --memory");
      return check_agents(in, config);
    case ClusterKind::kRay: {
      const auto rays = std::ranges::count(clusters, ClusterKind::kRay, &ClusterConfig::kind);
      return check_ray_cluster(in, config, rays == 1 ? RayPart::kHome : RayPart::kGuest);
    }
  }
}

}  // namespace

void read_clusters(ConfigReader& in, std::vector<ClusterConfig>& clusters) {
  named_items(
      in, "clusters",
      {.doc = "The machines of the job, by names that you choose. Without this section: this "
              "machine. With it, workers run only on what it lists; routers run here."},
      clusters, [&](ClusterConfig& config, ConfigReader& section) {
        read_cluster(section, config);
        if (!is_job_name(config.name)) {
          section.fail("",
                       "a cluster's name must be 1..63 of a-z, 0-9, - and _, and not begin "
                       "with -");
        }
        if (config.host.size() > kHostBytesMax) {
          section.fail("host", "must have at most 63 bytes");
        }
        if (clusters.size() > kClustersMax) {
          section.fail("", "is one too many: a job has at most " + std::to_string(kClustersMax) +
                               " clusters");
        }
        check_cluster(section, clusters);
        const auto local = std::ranges::count(clusters, ClusterKind::kLocal, &ClusterConfig::kind);
        if (config.kind == ClusterKind::kLocal && local > 1) {
          section.fail("kind", "another cluster is local, too");
        }
      });
}

std::string address_for_nodes(const std::vector<ClusterConfig>& clusters) {
  for (const ClusterConfig& cluster : clusters) {
    if (cluster.kind != ClusterKind::kLocal) {
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
