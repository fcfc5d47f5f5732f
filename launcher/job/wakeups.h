// Wakeups: when each process needs a look. A heartbeat moves no time: the look comes early, and
// finds the later one. So a heartbeat costs O(1). Value.
#pragma once

#include <map>
#include <unordered_map>
#include <utility>

#include "common/time.h"
#include "launcher/job/process.h"

namespace pdjob::launcher {

class Wakeups {
 public:
  Instant next() const { return times_.empty() ? kNever : times_.begin()->first.first; }

  // kNever: none. The process must live until it is removed.
  void set(Process& process, Instant when) {
    remove(process);
    if (when != kNever) {
      of_.emplace(process.order, when);
      times_.emplace(std::pair(when, process.order), &process);
    }
  }
  void remove(const Process& process) {
    if (const auto found = of_.find(process.order); found != of_.end()) {
      times_.erase({found->second, process.order});
      of_.erase(found);
    }
  }
  // Takes the first one. Requires: there is one.
  Process& take() {
    Process& process = *times_.begin()->second;
    remove(process);
    return process;
  }

 private:
  std::map<std::pair<Instant, uint64_t>, Process*> times_;
  std::unordered_map<uint64_t, Instant> of_;  // By Process::order.
};

}  // namespace pdjob::launcher
