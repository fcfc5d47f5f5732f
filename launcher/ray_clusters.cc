#include "launcher/ray_clusters.h"

#include <algorithm>
#include <filesystem>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include <fcntl.h>

#include "common/hex.h"
#include "common/random.h"
#include "launcher/agents/agent_cluster.h"
#include "launcher/agents/build_version.h"
#include "launcher/clusters/merged_cluster.h"
#include "launcher/ray/ray_cluster.h"
#include "net/http/http_client.h"

namespace pdjob::launcher {

namespace {

constexpr Duration kReconnect = std::chrono::minutes(10);
constexpr Duration kLeaseMin = std::chrono::seconds(15);  // Of the reservations.

std::string random_hex(int words) {
  std::string text;
  for (int word = 0; word < words; ++word) {
    append_hex(text, entropy(), 16);
  }
  return text;
}

std::string this_program() {
  std::error_code ignored;
  return std::filesystem::read_symlink("/proc/self/exe", ignored);
}

std::vector<ClusterConfig> ray_clusters(const JobConfig& config) {
  std::vector<ClusterConfig> clusters;
  std::ranges::copy_if(config.clusters, std::back_inserter(clusters),
                       [](const auto& cluster) { return cluster.kind == ClusterKind::kRay; });
  return clusters;
}

RayClusterSetting setting_of(const ClusterConfig& cluster) {
  return {.name = cluster.name,
          .nodes = cluster.nodes,
          .nodes_min = cluster.nodes_awaited(),
          .share = {.cpus = cluster.cpus,
                    .gpus = cluster.ray.gpus,
                    .memory_bytes = cluster.memory_bytes},
          .dashboard = cluster.ray.dashboard,
          .python = cluster.ray.python,
          .token_file = cluster.ray.token_file,
          .home_token_file = cluster.ray.home_token_file};
}

RaySetting session_setting(const JobConfig& config, const std::vector<ClusterConfig>& clusters) {
  RaySetting setting{.job = config.name + "-" + random_hex(1).substr(0, 8),
                     .address = clusters.front().ray.address,
                     .lease = std::max(kLeaseMin, config.launcher.orphan_timeout + kLeaseMin),
                     .reconnect = kReconnect,
                     .seed = entropy()};
  for (const ClusterConfig& cluster : clusters) {
    setting.clusters.push_back(setting_of(cluster));
  }
  return setting;
}

ShimOptions shim_options(const RayConfig& home, std::vector<OwnFile> files, int log) {
  ShimOptions options{.python = home.python, .files = std::move(files), .log = log};
  // By default a driver of Ray ends when its control store is away for a minute.
  options.environment.emplace_back("RAY_gcs_rpc_server_reconnect_timeout_s",
                                   std::to_string(static_cast<int>(seconds(kReconnect))));
  if (!home.token_file.empty()) {
    options.environment.emplace_back("RAY_AUTH_MODE", "token");
    options.environment.emplace_back("RAY_AUTH_TOKEN_PATH", home.token_file);
  }
  return options;
}

// Agents of guests join where those of the home do, at a port of their own.
Result<std::unique_ptr<AgentCluster>> open_agents(net::EventLoop& loop, const JobConfig& config,
                                                  const ClusterConfig& cluster,
                                                  const std::string& home_listen,
                                                  const std::string& key) {
  const std::string& wanted = cluster.listen.empty() ? home_listen : cluster.listen;
  PDJOB_TRY(net::HttpAddress listen, net::parse_http_address(wanted));
  const auto port = cluster.listen.empty() ? uint16_t{0} : listen.port;
  return AgentCluster::open(loop, {.roster = {.cluster = cluster.name,
                                              .job = config.name,
                                              .build = build_version(),
                                              .host = cluster.host,
                                              .lease = cluster.lease,
                                              .orphan_timeout = config.launcher.orphan_timeout,
                                              .first_session = (entropy() >> 1) + 1},
                                   .host = listen.host,
                                   .port = port,
                                   .keys = AgentKeys::of(key)});
}

}  // namespace

Result<std::unique_ptr<Cluster>> open_ray(net::EventLoop& loop, const JobConfig& config,
                                          LogFolder* logs) {
  const std::vector<ClusterConfig> clusters = ray_clusters(config);
  if (clusters.empty()) {
    return std::unique_ptr<Cluster>();
  }
  net::Fd log(open("/dev/null", O_WRONLY | O_CLOEXEC));
  if (logs != nullptr) {
    PDJOB_TRY(log, logs->open("ray-shim"));
  }
  PDJOB_TRY(std::vector<OwnFile> files, open_own_files());
  RayCluster::Options options{
      .setting = session_setting(config, clusters),
      .shim = shim_options(clusters.front().ray, std::move(files), log.get())};
  std::vector<std::unique_ptr<Cluster>> agents;
  for (const ClusterConfig& cluster : clusters) {
    const std::string key = random_hex(4);
    auto opened = open_agents(loop, config, cluster, clusters.front().listen, key);
    if (!opened) {
      return Error{opened.error().code, "cluster " + cluster.name + ": " + opened.error().message};
    }
    const std::string scheme = "tcp://";
    options.agents[cluster.name] = {
        .program = cluster.ray.program.empty() ? this_program() : cluster.ray.program,
        .ship = cluster.ray.program.empty(),
        .endpoint = (*opened)->endpoint().substr(scheme.size()),
        .key = key,
        .share = options.setting.clusters[agents.size()].share};
    agents.push_back(std::move(*opened));
  }
  options.log = std::move(log);
  return std::unique_ptr<Cluster>(std::make_unique<RayCluster>(
      loop, std::make_unique<MergedCluster>(loop, std::move(agents)), std::move(options)));
}

}  // namespace pdjob::launcher
