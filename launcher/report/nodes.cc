#include "launcher/report/nodes.h"

#include <algorithm>
#include <cstdint>
#include <map>

#include "common/config/config_text.h"
#include "common/json/json_writer.h"
#include "launcher/view/table.h"

namespace pdjob::launcher {

namespace {

// What the job's processes take of one node.
struct Use {
  uint64_t cores = 0;
  std::map<std::string, std::vector<std::string>> processes_of_gpu;
  std::map<std::string, uint32_t> percent_of_gpu;
  std::vector<std::string> processes;
};

Use use_of(const Node& node, const Job& job) {
  Use use;
  for (const Process& process : job.processes()) {
    for (const PlacePart& part : process.place.parts()) {
      if (part.node != node.name) {
        continue;
      }
      use.cores += process.demand.cores;
      use.processes.push_back(process.name);
      for (const std::string& gpu : part.gpus) {
        use.processes_of_gpu[gpu].push_back(process.name);
        use.percent_of_gpu[gpu] += process.demand.gpu_percent;
      }
    }
  }
  return use;
}

uint64_t free_cores(const Node& node, const Use& use) {
  return node.cores - std::min<uint64_t>(node.cores, use.cores);
}

std::string joined(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) {
    text += (text.empty() ? "" : ", ") + word;
  }
  return text.empty() ? "-" : text;
}

uint32_t percent_free(const Node& node, const std::string& gpu, const Use& use) {
  const auto used = use.percent_of_gpu.find(gpu);
  const uint32_t all = percent_of(node.gpu_parts, gpu);
  return used == use.percent_of_gpu.end() ? all : all - std::min(all, used->second);
}

// "2", or "1.5" if a half of one is free.
std::string free_gpus(const Node& node, const Use& use) {
  uint32_t percent = 0;
  for (const std::string& gpu : node.gpus) {
    percent += percent_free(node, gpu, use);
  }
  return portion_text(percent);
}

std::string labels_text(const Node& node) {
  std::vector<std::string> words;
  for (const auto& [key, value] : node.labels) {
    words.push_back(key);
    words.back().append("=").append(value);
  }
  return joined(words);
}

// For how long placement prefers other nodes.
Duration avoided(const Node& node, const Job& job, Instant now) {
  return job.trust().trusted_at(node.name, now) - now;
}

std::string avoided_text(Duration duration) {
  const auto seconds = duration / std::chrono::seconds(1);
  return seconds == 0 ? "-" : "for " + std::to_string(seconds) + " s";
}

void append_strings(JsonWriter& json, const std::vector<std::string>& texts) {
  json.begin_array();
  for (const std::string& text : texts) {
    json.string(text);
  }
  json.end_array();
}

// Only what is known.
void append_topology(JsonWriter& json, const Node& node, const std::string& gpu) {
  const auto place = static_cast<size_t>(std::ranges::find(node.gpus, gpu) - node.gpus.begin());
  if (place >= node.topology.gpus.size()) {
    return;
  }
  const GpuFacts& facts = node.topology.gpus[place];
  if (facts.island != kUnknownGroup) {
    json.key("island").integer(facts.island);
  }
  if (facts.numa != kUnknownGroup) {
    json.key("numa").integer(facts.numa);
  }
  if (!facts.nics.empty()) {
    json.key("nics");
    append_strings(json, facts.nics);
  }
}

void append_node(JsonWriter& json, const Node& node, const Job& job, Instant now) {
  const Use use = use_of(node, job);
  json.begin_object();
  json.key("name").string(node.name);
  json.key("cluster").string(node.cluster);
  json.key("host").string(node.host);
  json.key("cores").integer(node.cores);
  json.key("cores_reserved").integer(use.cores);
  json.key("cores_free").integer(free_cores(node, use));
  json.key("cores_bound").string(node.cores_bound);
  json.key("memory_bytes").integer(node.memory_bytes);
  json.key("memory_bound").string(node.memory_bound);
  json.key("routers_only").boolean(node.routers_only);
  json.key("avoided_seconds").integer(avoided(node, job, now) / std::chrono::seconds(1));
  json.key("labels").begin_object();
  for (const auto& [key, value] : node.labels) {
    json.key(key).string(value);
  }
  json.end_object();
  json.key("gpus").begin_array();
  for (const std::string& gpu : node.gpus) {
    json.begin_object();
    json.key("name").string(gpu);
    json.key("free").raw(portion_text(percent_free(node, gpu, use)));
    append_topology(json, node, gpu);
    const auto users = use.processes_of_gpu.find(gpu);
    json.key("processes");
    append_strings(
        json, users == use.processes_of_gpu.end() ? std::vector<std::string>() : users->second);
    json.end_object();
  }
  json.end_array();
  json.key("processes");
  append_strings(json, use.processes);
  json.end_object();
}

}  // namespace

std::string nodes_text(const std::vector<Node>& nodes, const Job& job, Instant now) {
  std::vector<std::vector<std::string>> table = {{"NODE", "CLUSTER", "HOST", "CORES", "FREE",
                                                  "MEMORY", "GPUS", "FREE", "LABELS", "AVOIDED",
                                                  "PROCESSES"}};
  for (const Node& node : nodes) {
    const Use use = use_of(node, job);
    table.push_back({node.name, node.cluster, node.host, std::to_string(node.cores),
                     std::to_string(free_cores(node, use)), gib_text(node.memory_bytes),
                     std::to_string(node.gpus.size()), free_gpus(node, use), labels_text(node),
                     avoided_text(avoided(node, job, now)), joined(use.processes)});
  }
  return format_table(table) + bounds_text(nodes);
}

std::string nodes_json(const std::string& name, const std::vector<Node>& nodes, const Job& job,
                       Instant now) {
  std::string text;
  JsonWriter json(text);
  json.begin_object();
  json.key("job").string(name);
  json.key("nodes").begin_array();
  for (const Node& node : nodes) {
    append_node(json, node, job, now);
  }
  json.end_array();
  json.end_object();
  return text + "\n";
}

}  // namespace pdjob::launcher
