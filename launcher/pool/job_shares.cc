#include "launcher/pool/job_shares.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "common/config/config_settings.h"
#include "common/crypto/sha256.h"
#include "launcher/job_plan.h"
#include "launcher/plan/launch_plan.h"
#include "launcher/pool/pool_specs.h"
#include "launcher/specs/job_specs.h"
#include "net/http/http_client.h"

namespace pdjob::launcher {

namespace {

constexpr uint64_t kAgentMemory = uint64_t{256} << 20;  // Of a share's agent and its sockets.

// Counts what the rows of a plan take of their nodes.
class Shares {
 public:
  explicit Shares(const std::vector<Node>& nodes) : nodes_(nodes) {}

  void take(const PlacePart& part, const Demand& demand) {
    Share& share = shares_[part.node];
    share.node = part.node;
    share.cores += demand.cores;
    share.memory_bytes += demand.memory_bytes;
    for (const std::string& gpu : part.gpus) {
      uint32_t percent = demand.gpu_percent;
      if (std::ranges::find(share.gpus, gpu) == share.gpus.end()) {
        share.gpus.push_back(gpu);
      } else {
        percent += percent_of(share.gpu_parts, gpu);
      }
      if (percent < kWholeGpu) {
        share.gpu_parts[gpu] = percent;
      } else {
        share.gpu_parts.erase(gpu);
      }
    }
    if (files_[part.node].insert(demand.file).second) {
      share.memory_bytes += demand.file_bytes;
    }
  }

  // `sizes_known`: the plan counts all memory. Otherwise each share has at least as much of its
  // node's memory as of its cores.
  std::vector<Share> finish(bool sizes_known) {
    std::vector<Share> shares;
    for (auto& [name, share] : shares_) {
      const Node& node = *std::ranges::find(nodes_, name, &Node::name);
      const uint64_t fair =
          node.cores > 0 ? node.memory_bytes / node.cores * share.cores : node.memory_bytes;
      share.memory_bytes += kAgentMemory;
      share.memory_bytes = sizes_known ? share.memory_bytes : std::max(share.memory_bytes, fair);
      share.labels = node.labels;
      shares.push_back(std::move(share));
    }
    return shares;
  }

 private:
  const std::vector<Node>& nodes_;
  std::map<std::string, Share> shares_;
  std::map<std::string, std::set<std::string>> files_;
};

// Equal for batches that a launcher would let have each other's workers.
std::string workers_of(const JobConfig& batch) {
  const JobSpecs specs = specs_of(batch_job(batch));
  return sha256_of(specs.launcher + specs_json(specs));
}

}  // namespace

std::vector<std::string> pool_settings(const std::string& listen, const std::string& key_file,
                                       uint32_t nodes) {
  return {"clusters={" + std::string(kPoolCluster) + ": {kind: agents, listen: \"" + listen +
          "\", key_file: \"" + key_file + "\", wait: 10min, nodes: " + std::to_string(nodes) +
          "}}"};
}

Result<JobConfig> read_pool_job(const std::string& source, const std::string& text,
                                const Places& places) {
  Places of_pool = places;
  of_pool.models_elsewhere = true;
  return parse_job_config(source, text, of_pool, JobUse::kAsWritten,
                          settings_of(pool_settings("127.0.0.1:1", "of the pool", 1)));
}

Result<PoolJobOrder> order_of(const JobConfig& config) {
  PDJOB_TRY(const net::HttpAddress door, net::parse_http_address(config.router.listen));
  const bool batch = config.mode == Mode::kBatch;
  return PoolJobOrder{.name = config.name,
                      .priority = batch ? 0 : kPriorityOfServing,
                      .batch = batch,
                      .listen = batch ? "" : config.router.listen,
                      .door = batch ? uint16_t{0} : door.port,
                      .keep = batch ? config.launcher.keep : Duration{},
                      .workers = batch ? workers_of(config) : ""};
}

Result<std::vector<Share>> shares_of(const JobConfig& config, std::vector<Node> free) {
  for (Node& node : free) {
    node.cluster = kPoolCluster;
  }
  const std::vector<Node> nodes = free;
  free.insert(free.begin(), Node{.name = "launcher", .host = "127.0.0.1", .routers_only = true});
  const JobConfig job = config.mode == Mode::kBatch ? batch_job(config) : config;
  PDJOB_TRY(const LaunchPlan plan, plan_on(job, free, PlanProbe::kNo));
  Shares shares(nodes);
  for (const PlanRow& row : plan.rows) {
    const PlanGroup* const group = group_of(plan, row);
    if (group == nullptr && row.role != net::Role::kStore) {
      continue;  // On the launcher's node.
    }
    const Demand demand = group == nullptr ? store_demand(job.kv_store) : group->group.demand;
    for (const PlacePart& part : row.place().parts()) {
      shares.take(part, demand);
    }
  }
  return shares.finish(unknown_models(job).empty());
}

}  // namespace pdjob::launcher
