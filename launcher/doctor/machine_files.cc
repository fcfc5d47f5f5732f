#include "launcher/doctor/machine_files.h"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <string_view>
#include <system_error>

#include "common/os/read_text.h"
#include "common/parse_number.h"
#include "launcher/clusters/machine_topology.h"

namespace pdjob::launcher {
namespace {

constexpr size_t kFilesMax = 4096;  // Of a folder.

// In order of name.
std::vector<std::string> files_in(const std::string& folder) {
  std::vector<std::string> names;
  std::error_code error;
  std::filesystem::directory_iterator entry(folder, error);
  while (!error && entry != std::filesystem::directory_iterator() && names.size() < kFilesMax) {
    names.push_back(entry->path().filename());
    entry.increment(error);
  }
  std::ranges::sort(names);
  return names;
}

// The next word, which is taken off the text.
std::string_view take_word(std::string_view& text) {
  constexpr std::string_view kBlanks = " \t\r\n";
  text.remove_prefix(std::min(text.find_first_not_of(kBlanks), text.size()));
  const std::string_view word = text.substr(0, text.find_first_of(kBlanks));
  text.remove_prefix(word.size());
  return word;
}

std::string first_word(const std::string& path) {
  const std::string text = read_text(path);
  std::string_view left = text;
  return std::string(take_word(left));
}

std::vector<std::string_view> lines_of(std::string_view text) {
  std::vector<std::string_view> lines;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    lines.push_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return lines;
}

void read_gpus(const std::string& root, MachineFiles& machine) {
  const std::string bus = root + "/sys/bus/pci/devices/";
  for (const std::string& device : files_in(bus)) {
    const std::string kind = first_word(bus + device + "/class");
    const bool shows = kind.starts_with("0x0300") || kind.starts_with("0x0302");
    machine.gpus_on_bus += shows && first_word(bus + device + "/vendor") == "0x10de" ? 1 : 0;
  }
  machine.gpus_usable = gpu_device_files(root);
  machine.gpu_driver = first_word(root + "/sys/module/nvidia/version");
  const std::string gpus = root + "/proc/driver/nvidia/gpus/";
  for (const std::string& gpu : files_in(gpus)) {
    const std::string text = read_text(gpus + gpu + "/information");
    for (std::string_view line : lines_of(text)) {
      if (take_word(line) == "Model:") {
        line.remove_prefix(std::min(line.find_first_not_of(" \t"), line.size()));
        machine.gpu_models.emplace_back(line);
      }
    }
  }
}

void read_rdma(const std::string& root, MachineFiles& machine) {
  const std::string devices = root + "/sys/class/infiniband/";
  for (const std::string& name : files_in(devices)) {
    const std::string state = read_text(devices + name + "/ports/1/state");
    machine.rdma.push_back({name, state.find("ACTIVE") != std::string::npos});
  }
  for (const std::string& name : files_in(root + "/dev/infiniband")) {
    machine.rdma_usable += name.starts_with("uverbs") ? 1 : 0;
  }
}

// Of /proc/self/limits: name, soft limit, hard limit, unit.
void read_limits(const std::string& text, MachineFiles& machine) {
  const auto hard = [](std::string_view line, std::string_view name) {
    line.remove_prefix(name.size());
    take_word(line);
    return parse_number<uint64_t>(take_word(line));
  };
  constexpr std::string_view kLocked = "Max locked memory";
  constexpr std::string_view kFiles = "Max open files";
  for (const std::string_view line : lines_of(text)) {
    if (line.starts_with(kLocked)) {
      machine.locked_bytes = hard(line, kLocked);
    } else if (line.starts_with(kFiles)) {
      machine.files = hard(line, kFiles);
    }
  }
}

// Of /proc/net/tcp: number, ADDRESS:PORT of this end and of the other, state.
void read_ports(const std::string& text, std::set<uint16_t>& taken) {
  constexpr std::string_view kListens = "0A";
  constexpr int kBase = 16;
  for (std::string_view line : lines_of(text)) {
    take_word(line);
    const std::string_view here = take_word(line);
    take_word(line);
    const std::string_view port = here.substr(std::min(here.rfind(':') + 1, here.size()));
    uint16_t number = 0;
    const auto [end, error] =
        std::from_chars(port.data(), port.data() + port.size(), number, kBase);
    if (error == std::errc() && take_word(line) == kListens) {
      taken.insert(number);
    }
  }
}

void read_passing_ports(const std::string& text, MachineFiles& machine) {
  std::string_view left = text;
  const auto first = parse_number<uint16_t>(take_word(left));
  const auto last = parse_number<uint16_t>(take_word(left));
  if (first && last) {
    machine.passing_port_first = *first;
    machine.passing_port_last = *last;
  }
}

}  // namespace

MachineFiles read_machine_files(const std::string& root) {
  MachineFiles machine;
  read_gpus(root, machine);
  read_rdma(root, machine);
  read_limits(read_text(root + "/proc/self/limits"), machine);
  for (const char* const table : {"/proc/net/tcp", "/proc/net/tcp6"}) {
    read_ports(read_text(root + table), machine.ports_taken);
  }
  read_passing_ports(read_text(root + "/proc/sys/net/ipv4/ip_local_port_range"), machine);
  return machine;
}

}  // namespace pdjob::launcher
