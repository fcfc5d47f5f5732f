// Virtual time. Tasks run one after the other, each at its instant. Tasks of equal instants run in
// the order in which they were added.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <utility>

#include "common/time.h"

namespace pdjob::simulation {

class SimLoop {
 public:
  using Task = std::function<void()>;

  Instant now() const { return now_; }
  void at(Instant when, Task task) {
    tasks_.emplace(std::pair(std::max(when, now_), ++tasks_made_), std::move(task));
  }
  void after(Duration delay, Task task) { at(now_ + delay, std::move(task)); }

  // Runs the next task if it is due by `until`; otherwise returns false.
  bool run_next(Instant until) {
    if (tasks_.empty() || tasks_.begin()->first.first > until) {
      return false;
    }
    auto next = tasks_.extract(tasks_.begin());
    now_ = next.key().first;
    next.mapped()();
    return true;
  }

 private:
  Instant now_{std::chrono::hours(1)};
  uint64_t tasks_made_ = 0;
  std::map<std::pair<Instant, uint64_t>, Task> tasks_;
};

}  // namespace pdjob::simulation
