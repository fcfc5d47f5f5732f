#include "launcher/placement/assumed_nodes.h"

#include <algorithm>
#include <array>
#include <optional>
#include <set>
#include <string_view>
#include <utility>

#include "common/config/config_reader.h"
#include "common/config/config_text.h"
#include "common/config/number_list.h"
#include "common/parse_number.h"

namespace pdjob::launcher {
namespace {

constexpr uint32_t kGpusOfNodeMax = 1024;

// "64GiB", "512GB", "1048576": a number of bytes, with or without a unit.
std::optional<uint64_t> parse_memory(std::string_view text) {
  constexpr auto kUnits =
      std::to_array<std::pair<std::string_view, uint64_t>>({{"KiB", uint64_t{1} << 10},
                                                            {"MiB", uint64_t{1} << 20},
                                                            {"GiB", uint64_t{1} << 30},
                                                            {"TiB", uint64_t{1} << 40},
                                                            {"kB", 1'000},
                                                            {"MB", 1'000'000},
                                                            {"GB", 1'000'000'000},
                                                            {"TB", 1'000'000'000'000},
                                                            {"", 1}});
  constexpr uint64_t kNumberMax = 1'000'000;
  const size_t digits = std::min(text.find_first_not_of("0123456789"), text.size());
  const auto number = parse_number<uint64_t>(text.substr(0, digits));
  text.remove_prefix(digits);
  text.remove_prefix(std::min(text.find_first_not_of(' '), text.size()));
  const auto* const unit =
      std::ranges::find(kUnits, text, &std::pair<std::string_view, uint64_t>::first);
  if (!number || *number == 0 || unit == kUnits.end() ||
      (unit->second > 1 && *number > kNumberMax)) {
    return std::nullopt;
  }
  return *number * unit->second;
}

struct Written {
  Node node;
  uint32_t gpus = 0;
  uint32_t count = 1;
};

// Places in the list of GPUs, such as "0-3". Fails at `key` if it is none.
NumberList read_gpu_places(ConfigReader& in, std::string_view key, std::string_view text,
                           uint32_t gpus) {
  const auto places = parse_number_list(text);
  if (!places || places->empty() || places->back() >= gpus) {
    in.fail(key, "must be places of its GPUs, from 0 on, such as 0-3; got " + quote(text));
    return {};
  }
  return *places;
}

void read_islands(ConfigReader& in, Written& written) {
  std::vector<std::string> islands;
  in.field("islands", islands,
           {.doc = "GPUs that are joined by NVLink: a list, each with places such as 0-3."});
  for (uint32_t i = 0; i < islands.size(); ++i) {
    for (const uint32_t gpu : read_gpu_places(in, "islands", islands[i], written.gpus)) {
      written.node.topology.gpus[gpu].island = i;
    }
  }
}

void read_numa(ConfigReader& in, Written& written) {
  NodeTopology& topology = written.node.topology;
  in.named_sections(
      "numa", {.doc = "Its NUMA nodes, by number."},
      [&](const std::string& name, ConfigReader& section) {
        NumaFacts numa{.number = parse_number<uint32_t>(name).value_or(kListedNumbersMax)};
        std::string gpus;
        section.field("cpus", numa.cpus, {.doc = "CPUs, such as 0-47,96-143."});
        section.field("gpus", gpus, {.doc = "Places of its GPUs, such as 0-3."});
        if (numa.number >= kNumaNodesMax) {
          section.fail("", "must have a number of a NUMA node as its name");
        }
        if (!parse_number_list(numa.cpus) || numa.cpus.size() > kCpuListBytesMax) {
          section.fail("cpus", "must be numbers of CPUs, such as 0-47,96-143");
        }
        if (!gpus.empty()) {
          for (const uint32_t gpu : read_gpu_places(section, "gpus", gpus, written.gpus)) {
            topology.gpus[gpu].numa = numa.number;
          }
        }
        topology.numa.push_back(std::move(numa));
      });
  std::ranges::sort(topology.numa, {}, &NumaFacts::number);
}

void read_nics(ConfigReader& in, Written& written) {
  in.section("nics",
             {.doc = "RDMA devices, each with the places of the GPUs that it is nearest to."},
             [&](ConfigReader& section) {
               for (const std::string& name : section.written_keys()) {
                 std::string places;
                 section.field(name, places, {.doc = "Places such as 0-3."});
                 if (!is_nic_name(name)) {
                   section.fail(name, "is no name of an RDMA device");
                 }
                 for (const uint32_t gpu : read_gpu_places(section, name, places, written.gpus)) {
                   std::vector<std::string>& nics = written.node.topology.gpus[gpu].nics;
                   if (nics.size() < kNicsOfGpuMax) {
                     nics.push_back(name);
                   }
                 }
               }
             });
}

void read_topology_keys(ConfigReader& in, Written& written) {
  NodeTopology& topology = written.node.topology;
  topology.gpus.resize(written.gpus);
  read_islands(in, written);
  read_numa(in, written);
  read_nics(in, written);
  if (std::ranges::count(topology.gpus, GpuFacts()) == std::ssize(topology.gpus)) {
    topology = {};
  }
}

uint64_t bytes_of(ConfigReader& in, std::string_view key, const std::string& text) {
  const auto bytes = parse_memory(text);
  if (!bytes) {
    in.fail(key,
            "must be a number of bytes, or one with KiB, MiB, GiB, TiB, kB, MB, GB or "
            "TB, got " +
                quote(text));
  }
  return bytes.value_or(0);
}

void read_node(ConfigReader& in, Written& written) {
  Node& node = written.node;
  std::string memory, gpu_memory;
  in.field("cores", node.cores, {.doc = "Cores that it offers."}, {1, 65536});
  in.field("memory", memory, {.doc = "Memory that it offers, such as 64GiB."});
  in.field("gpus", written.gpus, {.doc = "How many GPUs it has."}, {0, kGpusOfNodeMax});
  in.field("gpu_memory", gpu_memory, {.doc = "Memory of its largest GPU, such as 80GiB."});
  read_topology_keys(in, written);
  in.field("cluster", node.cluster, {.doc = "Which of the job's clusters it is in."});
  in.field("host", node.host, {.doc = "Its address."});
  in.field("count", written.count, {.doc = "How many such nodes there are: NAME-0, NAME-1, ..."},
           {1, kAssumedNodesMax});
  in.section("labels", {.doc = "What groups may ask for."}, [&](ConfigReader& section) {
    for (const std::string& name : section.written_keys()) {
      section.field(name, node.labels[name], {.doc = "A label."});
    }
  });
  if (node.cores == 0) {
    in.fail("cores", "is missing: how many cores does it offer?");
  }
  if (memory.empty()) {
    in.fail("memory", "is missing: how much does it offer, such as 64GiB?");
  } else {
    node.memory_bytes = bytes_of(in, "memory", memory);
  }
  if (!gpu_memory.empty()) {
    node.topology.gpu_memory_bytes = bytes_of(in, "gpu_memory", gpu_memory);
  }
}

void add(const Written& written, std::vector<Node>& nodes) {
  for (uint32_t i = 0; i < written.count; ++i) {
    Node node = written.node;
    node.name += written.count > 1 ? "-" + std::to_string(i) : "";
    node.host = node.host.empty() ? node.name : node.host;
    for (uint32_t gpu = 0; gpu < written.gpus; ++gpu) {
      node.gpus.push_back(std::to_string(gpu));
    }
    nodes.push_back(std::move(node));
  }
}

}  // namespace

Result<std::vector<Node>> parse_assumed_nodes(const std::string& source, const std::string& text) {
  std::vector<Node> nodes;
  ConfigReader in = ConfigReader::parse(source, text);
  in.named_sections("nodes", {.doc = "The machines, by name."},
                    [&](const std::string& name, ConfigReader& section) {
                      Written written{.node = {.name = name, .cluster = ""}};
                      read_node(section, written);
                      if (nodes.size() + written.count > kAssumedNodesMax) {
                        section.fail("", "is one node too many: at most " +
                                             std::to_string(kAssumedNodesMax) + " are allowed");
                        return;
                      }
                      add(written, nodes);
                    });
  if (nodes.empty()) {
    in.fail("nodes", "is missing: name at least one node");
  }
  if (const std::string errors = in.finish(); !errors.empty()) {
    return Error{ErrorCode::kInvalidArgument, errors};
  }
  return nodes;
}

namespace {

// The places of those GPUs for which `has` is true.
template <class Has>
std::string places_text(const NodeTopology& topology, const Has& has) {
  NumberList places;
  for (uint32_t i = 0; i < topology.gpus.size(); ++i) {
    if (has(topology.gpus[i])) {
      places.push_back(i);
    }
  }
  return number_list_text(places);
}

std::string islands_text(const NodeTopology& topology) {
  std::set<uint32_t> islands;
  for (const GpuFacts& gpu : topology.gpus) {
    islands.insert(gpu.island);
  }
  islands.erase(kUnknownGroup);
  std::string text;
  for (const uint32_t island : islands) {
    text += (text.empty() ? "" : ", ") +
            double_quoted(
                places_text(topology, [&](const GpuFacts& gpu) { return gpu.island == island; }));
  }
  return text.empty() ? "" : "    islands: [" + text + "]\n";
}

std::string numa_text(const NodeTopology& topology) {
  std::string text = topology.numa.empty() ? "" : "    numa:\n";
  for (const NumaFacts& numa : topology.numa) {
    const std::string gpus =
        places_text(topology, [&](const GpuFacts& gpu) { return gpu.numa == numa.number; });
    text += "      " + std::to_string(numa.number) + ": {cpus: " + double_quoted(numa.cpus) +
            (gpus.empty() ? "" : ", gpus: " + double_quoted(gpus)) + "}\n";
  }
  return text;
}

std::string nics_text(const NodeTopology& topology) {
  std::set<std::string> names;
  for (const GpuFacts& gpu : topology.gpus) {
    names.insert(gpu.nics.begin(), gpu.nics.end());
  }
  std::string text = names.empty() ? "" : "    nics:\n";
  for (const std::string& name : names) {
    text += "      " + name + ": " +
            double_quoted(places_text(topology,
                                      [&](const GpuFacts& gpu) {
                                        return std::ranges::find(gpu.nics, name) != gpu.nics.end();
                                      })) +
            "\n";
  }
  return text;
}

}  // namespace

std::string assumed_nodes_text(const std::vector<Node>& nodes) {
  std::string text = "nodes:\n";
  for (const Node& node : nodes) {
    if (node.routers_only) {
      continue;
    }
    text += "  " + double_quoted(node.name) + ":\n    cores: " + std::to_string(node.cores) +
            "\n    memory: " + std::to_string(node.memory_bytes) +
            "\n    gpus: " + std::to_string(node.gpus.size()) +
            (node.topology.gpu_memory_bytes == 0
                 ? ""
                 : "\n    gpu_memory: " + std::to_string(node.topology.gpu_memory_bytes)) +
            "\n    cluster: " + yaml_text(node.cluster) + "\n    host: " + yaml_text(node.host) +
            "\n" + islands_text(node.topology) + numa_text(node.topology) +
            nics_text(node.topology);
    text += node.labels.empty() ? "" : "    labels:\n";
    for (const auto& [key, value] : node.labels) {
      text += "      " + double_quoted(key) + ": " + double_quoted(value) + "\n";
    }
  }
  return text;
}

}  // namespace pdjob::launcher
