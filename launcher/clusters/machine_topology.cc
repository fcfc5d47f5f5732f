#include "launcher/clusters/machine_topology.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <optional>
#include <set>
#include <system_error>
#include <utility>

#include "common/os/read_text.h"
#include "common/parse_number.h"
#include "launcher/clusters/nvlink_islands.h"

namespace pdjob::launcher {
namespace {

constexpr size_t kEntriesMax = 1024;  // Of a folder.

using Words = std::vector<std::string>;

// In order of name.
Words names_in(const std::string& folder) {
  Words names;
  std::error_code error;
  std::filesystem::directory_iterator entry(folder, error);
  while (!error && entry != std::filesystem::directory_iterator() && names.size() < kEntriesMax) {
    names.push_back(entry->path().filename());
    entry.increment(error);
  }
  std::ranges::sort(names);
  return names;
}

bool is_there(const std::string& path) {
  std::error_code ignored;
  return std::filesystem::exists(path, ignored);
}

std::string_view trimmed(std::string_view text) {
  constexpr std::string_view kBlanks = " \t\r\n";
  text.remove_prefix(std::min(text.find_first_not_of(kBlanks), text.size()));
  return text.substr(0, text.find_last_not_of(kBlanks) + 1);
}

// Of a text with lines "Name: value".
std::string line_value(std::string_view text, std::string_view name) {
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = text.substr(0, end);
    if (line.starts_with(name) && line.substr(name.size()).starts_with(':')) {
      return std::string(trimmed(line.substr(name.size() + 1)));
    }
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return "";
}

// A PCI device: its root complex, then the bridges on the way, then itself.
struct PciDevice {
  Words path;
  uint32_t numa = kUnknownGroup;
};

PciDevice pci_device(const std::string& link) {
  PciDevice device;
  std::error_code error;
  const std::filesystem::path folder = std::filesystem::canonical(link, error);
  for (const auto& part : folder) {
    const std::string name = part;
    const bool inside = !device.path.empty();
    if (!inside ? name.starts_with("pci") && name.find(':') != std::string::npos
                : std::ranges::count(name, ':') == 2) {
      device.path.push_back(name);
    }
  }
  const std::string numa = read_text(link + "/numa_node");
  device.numa = parse_number<uint32_t>(trimmed(numa)).value_or(kUnknownGroup);  // -1: unknown.
  return device;
}

struct Gpu {
  std::string uuid;
  std::string model;
  PciDevice pci;
};

struct Nic {
  std::string name;
  PciDevice pci;
};

// Those that this process may open, in order of their addresses.
std::vector<Gpu> gpus_of(const std::string& root) {
  const std::filesystem::path folder = root + "/proc/driver/nvidia/gpus";
  const std::filesystem::path devices = root + "/sys/bus/pci/devices";
  const std::string file = root + "/dev/nvidia";
  std::vector<Gpu> gpus;
  for (const std::string& address : names_in(folder)) {
    const std::string text = read_text(folder / address / "information");
    const std::string minor = line_value(text, "Device Minor");
    if (!minor.empty() && is_there(file + minor)) {
      gpus.push_back({.uuid = line_value(text, "GPU UUID"),
                      .model = line_value(text, "Model"),
                      .pci = pci_device(devices / address)});
    }
  }
  return gpus;
}

// UCX, NCCL and Mooncake reach them through verbs, which devices of AWS do not have in full.
bool is_usable(const std::string& root, const std::string& folder) {
  std::error_code error;
  const auto driver = std::filesystem::read_symlink(folder + "/device/driver", error);
  const Words verbs = names_in(folder + "/device/infiniband_verbs");
  return driver.filename() != "efa" && read_text(folder + "/ports/1/state").starts_with("4:") &&
         std::ranges::any_of(verbs, [&](const std::string& name) {
           return is_there(root + "/dev/infiniband/" + name);
         });
}

std::vector<Nic> nics_of(const std::string& root) {
  const std::string folder = root + "/sys/class/infiniband/";
  std::vector<Nic> nics;
  for (const std::string& name : names_in(folder)) {
    if (is_nic_name(name) && is_usable(root, folder + name)) {
      nics.push_back({.name = name, .pci = pci_device(folder + name + "/device")});
    }
  }
  return nics;
}

std::vector<NumaFacts> numa_of(const std::string& root, const NumberList& own) {
  const std::string folder = root + "/sys/devices/system/node/";
  constexpr std::string_view kNode = "node";
  std::vector<NumaFacts> nodes;
  for (const std::string& name : names_in(folder)) {
    const auto number = name.starts_with(kNode)
                            ? parse_number<uint32_t>(std::string_view(name).substr(kNode.size()))
                            : std::nullopt;
    const std::string text = number ? read_text(folder + name + "/cpulist") : "";
    const NumberList all = parse_number_list(trimmed(text)).value_or(NumberList());
    NumberList cpus;
    std::ranges::set_intersection(all, own, std::back_inserter(cpus));
    std::string list = number_list_text(cpus);
    if (!cpus.empty() && list.size() <= kCpuListBytesMax && nodes.size() < kNumaNodesMax) {
      nodes.push_back({.number = *number, .cpus = std::move(list)});
    }
  }
  std::ranges::sort(nodes, {}, &NumaFacts::number);
  return nodes;
}

// Less is nearer.
using PciDistance = std::array<size_t, 2>;
enum class Meet : size_t { kUnderBridge, kInRootComplex, kInNumaNode, kNowhere };

PciDistance distance_between(const PciDevice& one, const PciDevice& other) {
  const auto shared =
      static_cast<size_t>(std::ranges::mismatch(one.path, other.path).in1 - one.path.begin());
  constexpr size_t kDeep = 64;
  const Meet meet = shared > 1                                            ? Meet::kUnderBridge
                    : shared == 1                                         ? Meet::kInRootComplex
                    : one.numa == other.numa && one.numa != kUnknownGroup ? Meet::kInNumaNode
                                                                          : Meet::kNowhere;
  return {static_cast<size_t>(meet), kDeep - std::min(shared, kDeep)};
}

std::vector<std::string> nearest_nics(const PciDevice& gpu, const std::vector<Nic>& nics) {
  std::set<PciDistance> distances;
  for (const Nic& nic : nics) {
    distances.insert(distance_between(gpu, nic.pci));
  }
  const auto meets_under_bridge = [](const PciDistance& distance) {
    return distance[0] == static_cast<size_t>(Meet::kUnderBridge);
  };
  if (distances.empty() || (distances.size() == 1 && !meets_under_bridge(*distances.begin()))) {
    return {};
  }
  std::vector<std::string> names;
  for (const Nic& nic : nics) {
    if (distance_between(gpu, nic.pci) == *distances.begin() && names.size() < kNicsOfGpuMax) {
      names.push_back(nic.name);
    }
  }
  return names;
}

// CUDA's number is a GPU's place by address only if no GPU is faster than another one.
bool numbers_are_certain(const MachineFacts& facts, const std::vector<Gpu>& gpus) {
  return gpus.size() == gpu_device_files(facts.root) &&
         (facts.numbered_by_address || std::ranges::all_of(gpus, [&](const Gpu& gpu) {
            return gpu.model == gpus.front().model;
          }));
}

// CUDA takes a UUID's beginning, if no other one begins alike. "MIG-GPU-<uuid>/1/0" is a part.
std::optional<size_t> gpu_called(std::string_view name, const std::vector<Gpu>& gpus,
                                 bool numbered) {
  if (const auto number = parse_number<size_t>(name)) {
    return numbered && *number < gpus.size() ? number : std::nullopt;
  }
  constexpr std::string_view kMig = "MIG-";
  if (name.starts_with(kMig)) {
    name = name.substr(kMig.size(), name.find('/') - kMig.size());
  }
  std::optional<size_t> found;
  for (size_t i = 0; i < gpus.size() && name.starts_with("GPU-"); ++i) {
    if (gpus[i].uuid.starts_with(name)) {
      if (found) {
        return std::nullopt;
      }
      found = i;
    }
  }
  return found;
}

}  // namespace

size_t gpu_device_files(const std::string& root) {
  constexpr std::string_view kGpu = "nvidia";
  const Words names = names_in(root + "/dev");
  return static_cast<size_t>(std::ranges::count_if(names, [&](const std::string& name) {
    return name.starts_with(kGpu) && name.size() > kGpu.size() &&
           name.find_first_not_of("0123456789", kGpu.size()) == std::string::npos;
  }));
}

NodeTopology read_topology(const MachineFacts& facts) {
  const std::vector<Gpu> gpus = gpus_of(facts.root);
  const std::vector<Nic> nics = nics_of(facts.root);
  const bool numbered = numbers_are_certain(facts, gpus);
  std::vector<uint32_t> islands = nvlink_islands(facts.driver_table);
  if (islands.size() != gpus.size()) {
    islands.assign(gpus.size(), kUnknownGroup);
  }
  NodeTopology topology;
  for (const std::string& name : facts.gpus) {
    GpuFacts& own = topology.gpus.emplace_back();
    if (const auto place = gpu_called(name, gpus, numbered)) {
      const PciDevice& pci = gpus[*place].pci;
      own = {.numa = pci.numa, .island = islands[*place], .nics = nearest_nics(pci, nics)};
    }
  }
  if (std::ranges::count(topology.gpus, GpuFacts()) == std::ssize(topology.gpus)) {
    return {};
  }
  topology.numa = numa_of(facts.root, facts.cpus);
  return topology;
}

uint64_t largest_gpu_memory(std::string_view list) {
  constexpr uint64_t kMibMax = uint64_t{1} << 30;  // Anything else is no memory.
  uint64_t most = 0;
  while (!list.empty()) {
    const std::string_view line = list.substr(0, list.find('\n'));
    list.remove_prefix(std::min(list.size(), line.size() + 1));
    const uint64_t mib = parse_number<uint64_t>(line).value_or(0);
    most = std::max(most, mib <= kMibMax ? mib : 0);
  }
  return most << 20;
}

}  // namespace pdjob::launcher
