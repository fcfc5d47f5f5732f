#include "launcher/pool/pool_text.h"

#include <algorithm>
#include <array>

#include "common/address_text.h"
#include "common/config/config_text.h"
#include "common/json/json_writer.h"
#include "common/metrics.h"
#include "launcher/placement/node_share.h"
#include "launcher/view/table.h"

namespace pdjob::launcher {

namespace {

constexpr std::array kStates = {PoolJobState::kQueued, PoolJobState::kRunning,
                                PoolJobState::kEnding, PoolJobState::kWarm, PoolJobState::kEnded};

struct Size {
  uint64_t nodes = 0;
  uint64_t cores = 0;
  uint64_t gpu_percent = 0;
};

Size size_of(const std::vector<Node>& nodes) {
  Size size{.nodes = nodes.size()};
  for (const Node& node : nodes) {
    size.cores += node.cores;
    size.gpu_percent += percent_of_all(node.gpus, node.gpu_parts);
  }
  return size;
}

std::string host_in(const std::vector<Node>& nodes, const std::string& name) {
  const auto node = std::ranges::find(nodes, name, &Node::name);
  return node == nodes.end() ? "" : node->host;
}

// Where clients reach it: "10.0.0.7:8000"; empty: nowhere, or only its launcher knows.
std::string address_of(const PoolJob& job, const std::string& host) {
  if (job.state != PoolJobState::kRunning || job.order.door == 0 || host.empty()) {
    return "";
  }
  const std::string& listen = job.order.listen;
  const bool everywhere = listen.starts_with("0.0.0.0:") || listen.starts_with("[::]:");
  return everywhere ? address_text(host, job.order.door) : listen;
}

void write_job(JsonWriter& json, const PoolJob& job, const std::string& host) {
  json.key("name").string(job.order.name);
  json.key("id").integer(job.id);
  json.key("state").string(to_string(job.state));
  json.key("why").string(job.why);
  json.key("queue").string(job.order.queue);
  json.key("priority").integer(job.order.priority);
  json.key("cores").integer(job.cores());
  json.key("gpus").raw(portion_text(job.gpu_percent()));
  json.key("launcher").string(job.launcher.node);
  json.key("address").string(address_of(job, host));
}

}  // namespace

std::string jobs_text(const PoolView& view) {
  const Size all = size_of(view.nodes);
  const Size free = size_of(view.free);
  std::string text = "pool " + view.pool + ": " + count_text(all.nodes, "node") + ", " +
                     std::to_string(free.cores) + " of " + std::to_string(all.cores) +
                     " cores and " + portion_text(free.gpu_percent) + " of " +
                     portion_text(all.gpu_percent) + " GPUs are free\n";
  for (const QueueQuota& quota : view.quotas) {
    const auto bound = [](uint64_t number) {
      return number == 0 ? std::string("any number of") : "at most " + std::to_string(number);
    };
    text += "queue " + quota.queue + ": " + bound(quota.cores) + " cores, " + bound(quota.gpus) +
            " GPUs\n";
  }
  std::vector<std::vector<std::string>> rows = {{"JOB", "STATE", "QUEUE", "PRIORITY", "CORES",
                                                 "GPUS", "NODES", "LAUNCHER", "CLIENTS", "WHY"}};
  for (const PoolJob& job : view.jobs) {
    const std::string address = address_of(job, host_in(view.nodes, job.launcher.node));
    rows.push_back({job.order.name, to_string(job.state), job.order.queue,
                    std::to_string(job.order.priority), std::to_string(job.cores()),
                    portion_text(job.gpu_percent()), std::to_string(job.shares.size()),
                    job.launcher.node.empty() ? "-" : job.launcher.node,
                    address.empty() ? "-" : address, job.why});
  }
  return text +
         (view.jobs.empty() ? "no jobs: `pdjob submit FILE` brings one\n" : format_table(rows));
}

std::string jobs_json(const PoolView& view) {
  std::string text;
  JsonWriter json(text);
  json.begin_object();
  json.key("pool").string(view.pool);
  json.key("nodes").begin_array();
  for (const Node& node : view.nodes) {
    const auto free = std::ranges::find(view.free, node.name, &Node::name);
    json.begin_object();
    json.key("name").string(node.name);
    json.key("cores").integer(node.cores);
    json.key("cores_free").integer(free == view.free.end() ? 0 : free->cores);
    json.key("memory_bytes").integer(node.memory_bytes);
    json.key("memory_bytes_free").integer(free == view.free.end() ? 0 : free->memory_bytes);
    json.key("gpus").integer(node.gpus.size());
    json.key("gpus_free")
        .raw(portion_text(free == view.free.end() ? 0
                                                  : percent_of_all(free->gpus, free->gpu_parts)));
    json.end_object();
  }
  json.end_array();
  json.key("quotas").begin_array();
  for (const QueueQuota& quota : view.quotas) {
    json.begin_object();
    json.key("queue").string(quota.queue);
    json.key("cores").integer(quota.cores);
    json.key("gpus").integer(quota.gpus);
    json.end_object();
  }
  json.end_array();
  json.key("jobs").begin_array();
  for (const PoolJob& job : view.jobs) {
    json.begin_object();
    write_job(json, job, host_in(view.nodes, job.launcher.node));
    json.key("shares").begin_array();
    for (const HeldShare& held : job.shares) {
      json.begin_object();
      json.key("number").integer(held.number);
      json.key("node").string(held.share.node);
      json.key("cores").integer(held.share.cores);
      json.key("memory_bytes").integer(held.share.memory_bytes);
      json.key("gpus").begin_array();
      for (const std::string& gpu : held.share.gpus) {
        json.string(gpu);
      }
      json.end_array();
      json.key("gpu_parts").begin_object();
      for (const auto& [gpu, percent] : held.share.gpu_parts) {
        json.key(gpu).raw(portion_text(percent));
      }
      json.end_object();
      json.end_object();
    }
    json.end_array();
    json.end_object();
  }
  json.end_array();
  json.end_object();
  return text + "\n";
}

std::string job_json(const PoolJob& job, const std::string& host) {
  std::string text;
  JsonWriter json(text);
  json.begin_object();
  write_job(json, job, host);
  json.end_object();
  return text + "\n";
}

std::string pool_metrics(const PoolView& view) {
  Metrics metrics;
  for (const PoolJobState state : kStates) {
    const auto count = std::ranges::count(view.jobs, state, &PoolJob::state);
    metrics.gauge("pdjob_pool_jobs", "Jobs of the pool.", {{"state", to_string(state)}})
        .set(static_cast<double>(count));
  }
  const auto sizes = [&](const Size& size, const char* which) {
    metrics.gauge("pdjob_pool_cores", "Cores of the pool's nodes.", {{"which", which}})
        .set(static_cast<double>(size.cores));
    metrics.gauge("pdjob_pool_gpus", "GPUs of the pool's nodes.", {{"which", which}})
        .set(static_cast<double>(size.gpu_percent) / kWholeGpu);
  };
  sizes(size_of(view.nodes), "all");
  sizes(size_of(view.free), "free");
  metrics.gauge("pdjob_pool_nodes", "Nodes whose agents have joined.")
      .set(static_cast<double>(view.nodes.size()));
  return metrics.text();
}

}  // namespace pdjob::launcher
