#include "common/os/run_delay.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <set>
#include <string>
#include <system_error>
#include <vector>

#include "common/os/process_stat.h"
#include "common/parse_number.h"

namespace pdjob {
namespace {

std::vector<int64_t> numbers_in(const std::string& folder) {
  std::vector<int64_t> numbers;
  std::error_code gone;
  std::filesystem::directory_iterator entry(folder, gone);
  for (; !gone && entry != std::filesystem::directory_iterator(); entry.increment(gone)) {
    if (const auto number = parse_number<int64_t>(entry->path().filename().string())) {
      numbers.push_back(*number);
    }
  }
  return numbers;
}

bool read_times(const std::string& folder, CoreTime& times) {
  std::ifstream file(folder + "/schedstat");
  uint64_t ran_ns = 0;
  uint64_t waited_ns = 0;
  if (!(file >> ran_ns >> waited_ns)) {
    return false;
  }
  times.ran = std::chrono::nanoseconds(ran_ns);
  times.waited = std::chrono::nanoseconds(waited_ns);
  return true;
}

std::string tasks_of(int64_t pid) { return "/proc/" + std::to_string(pid) + "/task"; }

}  // namespace

RunDelays run_delays(int64_t pid) {
  RunDelays delays;
  for (const int64_t thread : numbers_in(tasks_of(pid))) {
    if (CoreTime times; read_times(tasks_of(pid) + "/" + std::to_string(thread), times)) {
      delays[thread] = times.waited;
    }
  }
  return delays;
}

std::map<int64_t, CoreTime> core_times(int64_t pid) {
  std::map<int64_t, CoreTime> all;
  for (const int64_t thread : numbers_in(tasks_of(pid))) {
    const std::string folder = tasks_of(pid) + "/" + std::to_string(thread);
    if (CoreTime times; read_times(folder, times)) {
      const auto stat = read_process_stat(folder);
      times.runnable = stat && stat->state == 'R';
      all[thread] = times;
    }
  }
  return all;
}

std::vector<int64_t> descendants_of(int64_t pid) {
  std::multimap<int64_t, int64_t> children;
  for (const int64_t each : numbers_in("/proc")) {
    if (const auto stat = read_process_stat("/proc/" + std::to_string(each))) {
      children.emplace(stat->parent, each);
    }
  }
  std::vector<int64_t> found{pid};
  std::set<int64_t> known{pid};  // The files were not read at one moment.
  for (size_t i = 0; i < found.size(); ++i) {
    const auto [from, to] = children.equal_range(found[i]);
    for (auto child = from; child != to; ++child) {
      if (known.insert(child->second).second) {
        found.push_back(child->second);
      }
    }
  }
  found.erase(found.begin());
  return found;
}

Waits waits_between(const RunDelays& before, const RunDelays& now) {
  Waits waits;
  for (const auto& [thread, delay] : now) {
    const auto known = before.find(thread);
    // The id of a thread that ended may be given again.
    const bool same = known != before.end() && known->second <= delay;
    const Duration waited = same ? delay - known->second : delay;
    waits.longest = std::max(waits.longest, waited);
    waits.sum += waited;
  }
  return waits;
}

}  // namespace pdjob
