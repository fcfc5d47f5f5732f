#include "launcher/placement/near_devices.h"

#include <algorithm>
#include <set>

#include "common/config/number_list.h"

namespace pdjob::launcher {
namespace {

using Numbers = std::set<uint32_t>;

// Empty: a GPU is unknown.
std::vector<const GpuFacts*> facts_of(const Node& node, const std::vector<std::string>& gpus) {
  std::vector<const GpuFacts*> facts;
  for (const std::string& gpu : gpus) {
    const auto found = std::ranges::find(node.gpus, gpu);
    const auto place = static_cast<size_t>(found - node.gpus.begin());
    if (found == node.gpus.end() || place >= node.topology.gpus.size()) {
      return {};
    }
    facts.push_back(&node.topology.gpus[place]);
  }
  return facts;
}

// Empty: one of them is unknown.
Numbers numbers_of(const std::vector<const GpuFacts*>& gpus, uint32_t GpuFacts::* group) {
  Numbers numbers;
  for (const GpuFacts* const gpu : gpus) {
    numbers.insert(gpu->*group);
  }
  return numbers.contains(kUnknownGroup) ? Numbers() : numbers;
}

std::string group_text(size_t gpus, const Numbers& numbers, const std::string& group) {
  return gpus == 1             ? group + " " + std::to_string(*numbers.begin())
         : numbers.size() == 1 ? "one " + group
                               : std::to_string(numbers.size()) + " " + group + "s";
}

std::string joined_text(size_t gpus, const Numbers& islands, const Numbers& sockets) {
  if (!islands.empty() && (islands.size() == 1 || sockets.size() != 1)) {
    return group_text(gpus, islands, "NVLink island");
  }
  return sockets.empty() ? "" : group_text(gpus, sockets, "NUMA node");
}

std::vector<std::string> nics_of(const std::vector<const GpuFacts*>& gpus) {
  std::vector<std::string> nics;
  for (const GpuFacts* const gpu : gpus) {
    for (const std::string& nic : gpu->nics) {
      if (std::ranges::find(nics, nic) == nics.end()) {
        nics.push_back(nic);
      }
    }
  }
  return nics;
}

bool has_nics_for_its_gpus(const Node& node) {
  return node.gpus.empty() || node.routers_only ||
         std::ranges::any_of(node.topology.gpus,
                             [](const GpuFacts& gpu) { return !gpu.nics.empty(); });
}

// The CPUs of these NUMA nodes. Empty: they are all that there are, or too few.
std::string cpus_of(const NodeTopology& topology, const Numbers& sockets, uint32_t threads) {
  NumberList near;
  size_t all = 0;
  for (const NumaFacts& numa : topology.numa) {
    const NumberList cpus = parse_number_list(numa.cpus).value_or(NumberList());
    all += cpus.size();
    if (sockets.contains(numa.number)) {
      near.insert(near.end(), cpus.begin(), cpus.end());
    }
  }
  std::ranges::sort(near);
  return near.size() < all && near.size() >= threads ? number_list_text(near) : "";
}

}  // namespace

std::string NearDevices::nics_text() const {
  std::string text;
  for (const std::string& nic : nics) {
    text += (text.empty() ? "" : ",") + nic;
  }
  return text;
}

std::string NearDevices::text() const {
  std::string text = gpus;
  const auto add = [&text](const std::string& part) {
    text.append(text.empty() ? "" : "; ").append(part);
  };
  if (!nics.empty()) {
    add((nics.size() == 1 ? "nearest NIC " : "nearest NICs ") + nics_text());
  }
  if (!cpus.empty()) {
    add("cores " + cpus + (memory_node.empty() ? "" : " and memory of NUMA node " + memory_node));
  }
  return text;
}

NearDevices near_devices(const std::vector<Node>& nodes, const PlacePart& part,
                         const Demand& demand) {
  NearDevices near;
  const auto node = std::ranges::find(nodes, part.node, &Node::name);
  if (demand.near == Near::kNothing || node == nodes.end()) {
    return near;
  }
  const std::vector<const GpuFacts*> facts = facts_of(*node, part.gpus);
  if (facts.empty()) {
    return near;
  }
  const Numbers sockets = numbers_of(facts, &GpuFacts::numa);
  near.gpus = joined_text(facts.size(), numbers_of(facts, &GpuFacts::island), sockets);
  if (demand.near == Near::kAll) {
    near.nics = nics_of(facts);
  }
  if (!near.nics.empty() && !std::ranges::all_of(nodes, has_nics_for_its_gpus)) {
    near.nics.clear();
  }
  near.cpus = cpus_of(node->topology, sockets, std::max(demand.cores, 1U));
  if (!near.cpus.empty() && sockets.size() == 1) {
    near.memory_node = std::to_string(*sockets.begin());
  }
  return near;
}

void append_near(JsonWriter& json, const NearDevices& near) {
  if (!near.gpus.empty()) {
    json.key("gpu_why").string(near.gpus);
  }
  if (!near.nics.empty()) {
    json.key("nics").begin_array();
    for (const std::string& nic : near.nics) {
      json.string(nic);
    }
    json.end_array();
  }
  if (!near.cpus.empty()) {
    json.key("cpus").string(near.cpus);
  }
  if (!near.memory_node.empty()) {
    json.key("memory_node").string(near.memory_node);
  }
}

}  // namespace pdjob::launcher
