#include "common/os/machine_share.h"

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <optional>
#include <sstream>

#include <unistd.h>

#include "common/os/affinity.h"
#include "common/os/read_text.h"

namespace pdjob {

namespace {

constexpr size_t kGroupBytesMax = 160;  // Of its name for people.

std::vector<std::string> words_of(const std::string& text, char between) {
  std::vector<std::string> words;
  std::istringstream in(text);
  for (std::string word; std::getline(in, word, between);) {
    words.push_back(word);
  }
  return words;
}

// The kernel writes a blank as \040, and so on.
std::string unescaped(const std::string& text) {
  std::string plain;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '\\' || i + 3 >= text.size()) {
      plain += text[i];
      continue;
    }
    int byte = 0;
    for (const char digit : text.substr(i + 1, 3)) {
      byte = byte * 8 + (digit - '0');
    }
    plain += static_cast<char>(byte);
    i += 3;
  }
  return plain;
}

// Logs and terminals show it, and other machines accept it.
std::string printable(std::string name) {
  if (name.size() > kGroupBytesMax) {
    name = "..." + name.substr(name.size() - kGroupBytesMax);
  }
  std::ranges::replace_if(name, [](char c) { return c < ' ' || c > '~'; }, '?');
  return name;
}

struct Mount {
  std::string top;  // The group that it shows at its path.
  std::string path;
  bool v2 = false;
  std::vector<std::string> options;  // Of v1: also its controllers.
};

std::vector<Mount> cgroup_mounts(std::string_view mountinfo) {
  std::vector<Mount> mounts;
  for (const std::string& line : words_of(std::string(mountinfo), '\n')) {
    // ID PARENT DEVICE ROOT PATH OPTIONS [TAGS] - TYPE SOURCE OPTIONS
    const std::vector<std::string> words = words_of(line, ' ');
    const auto dash = std::ranges::find(words, "-");
    if (dash - words.begin() < 6 || words.end() - dash < 4) {
      continue;
    }
    const std::string path = unescaped(words[4]);
    std::erase_if(mounts, [&](const Mount& mount) { return mount.path == path; });  // It is hidden.
    if (const std::string& type = dash[1]; type == "cgroup" || type == "cgroup2") {
      mounts.push_back({.top = unescaped(words[3]),
                        .path = path,
                        .v2 = type == "cgroup2",
                        .options = words_of(dash[3], ',')});
    }
  }
  return mounts;
}

// v2 has no controllers.
bool shows(const Mount& mount, const std::vector<std::string>& controllers) {
  return mount.v2 ? controllers.empty()
                  : std::ranges::find_first_of(controllers, mount.options) != controllers.end();
}

// The folder of group `path` below the mount, such as "/a/b"; empty: the mount itself.
std::string below(const Mount& mount, const std::string& path) {
  const std::string top = mount.top == "/" ? "" : mount.top;
  return path != "/" && path.starts_with(top + "/") ? path.substr(top.size()) : "";
}

// The folder `rest` below the mount, and all above it up to the mount's own.
void add_upwards(const Mount& mount, std::string rest, std::vector<CgroupFolder>& folders) {
  while (true) {
    const std::string group = (mount.top == "/" ? "" : mount.top) + rest;
    folders.push_back({mount.path + rest, printable(group.empty() ? "/" : group)});
    if (rest.empty()) {
      return;
    }
    rest.resize(rest.rfind('/'));
  }
}

std::optional<int64_t> number_in(const std::string& path) {
  int64_t number = 0;
  return std::ifstream(path) >> number ? std::optional(number) : std::nullopt;
}

void bound_cores_by(MachineShare& share, const CgroupFolder& folder, const std::string& path) {
  int64_t quota = 0;
  int64_t period = 0;
  if (!(std::ifstream(path + "/cpu.max") >> quota >> period)) {  // "max" is no number.
    quota = number_in(path + "/cpu.cfs_quota_us").value_or(0);   // -1: no limit.
    period = number_in(path + "/cpu.cfs_period_us").value_or(0);
  }
  if (quota <= 0 || period <= 0) {
    return;
  }
  const double cpus = static_cast<double>(quota) / static_cast<double>(period);
  char part[32] = "of";
  if (quota % period != 0) {
    std::snprintf(part, sizeof part, "%.2f of", cpus);
  }
  share.bound_cores(cpus, std::string("CPU quota ") + part + " cgroup " + folder.group);
}

void bound_memory_by(MachineShare& share, const CgroupFolder& folder, const std::string& path) {
  for (const char* const file : {"memory.max", "memory.limit_in_bytes", "memory.high"}) {
    const auto most = number_in(path + "/" + file);
    if (most && *most > 0) {
      share.bound_memory(static_cast<uint64_t>(*most),
                         std::string(file) + " of cgroup " + folder.group);
    }
  }
}

uint64_t configured(int name) { return static_cast<uint64_t>(std::max(sysconf(name), 0L)); }

}  // namespace

void MachineShare::bound_cores(double most, std::string_view by) {
  if (most > 0 && most < cpus) {
    cpus = most;
    cores_bound = by;
  }
}

void MachineShare::bound_memory(uint64_t most, std::string_view by) {
  if (most > 0 && most < memory_bytes) {
    memory_bytes = most;
    memory_bound = by;
  }
}

std::vector<CgroupFolder> cgroup_folders(std::string_view cgroup, std::string_view mountinfo) {
  const std::vector<Mount> mounts = cgroup_mounts(mountinfo);
  std::vector<CgroupFolder> folders;
  for (const std::string& line : words_of(std::string(cgroup), '\n')) {
    // ID:CONTROLLERS:PATH; v2 has no controllers here.
    const size_t first = line.find(':');
    const size_t second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos) {
      continue;
    }
    const std::vector<std::string> controllers =
        words_of(line.substr(first + 1, second - first - 1), ',');
    const std::string path = line.substr(second + 1);
    if (path.starts_with("/..")) {
      continue;  // Outside of its namespace: no mount shows it.
    }
    for (const Mount& mount : mounts) {
      if (shows(mount, controllers)) {
        add_upwards(mount, below(mount, path), folders);
      }
    }
  }
  return folders;
}

void bound_by_cgroups(MachineShare& share, const std::string& root) {
  for (const CgroupFolder& folder : cgroup_folders(read_text(root + "/proc/self/cgroup"),
                                                   read_text(root + "/proc/self/mountinfo"))) {
    bound_cores_by(share, folder, root + folder.path);
    bound_memory_by(share, folder, root + folder.path);
  }
}

MachineShare machine_share() {
  MachineShare share;
  share.cpus = static_cast<double>(std::max<uint64_t>(configured(_SC_NPROCESSORS_ONLN), 1));
  share.memory_bytes = configured(_SC_PHYS_PAGES) * configured(_SC_PAGESIZE);
  share.bound_cores(static_cast<double>(own_cpus().size()), "affinity");
  bound_by_cgroups(share);
  return share;
}

}  // namespace pdjob
