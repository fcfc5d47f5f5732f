// Virtual time. Tasks run one after the other, each at its instant. Tasks of equal instants run in
// the order in which they were added.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include "common/time.h"

namespace pdjob::simulation {

class SimLoop {
 public:
  using Task = std::function<void()>;

  Instant now() const { return now_; }
  void at(Instant when, Task task) {
    tasks_.push_back({std::max(when, now_), ++tasks_made_, std::move(task)});
    std::ranges::push_heap(tasks_, later);
  }
  void after(Duration delay, Task task) { at(now_ + delay, std::move(task)); }

  // Runs the next task if it is due by `until`; otherwise returns false.
  bool run_next(Instant until) {
    if (tasks_.empty() || tasks_.front().when > until) {
      return false;
    }
    std::ranges::pop_heap(tasks_, later);
    const Due next = std::move(tasks_.back());
    tasks_.pop_back();
    now_ = next.when;
    next.task();
    return true;
  }

 private:
  struct Due {
    Instant when;
    uint64_t number = 0;
    Task task;
  };
  static bool later(const Due& one, const Due& other) {
    return std::pair(one.when, one.number) > std::pair(other.when, other.number);
  }

  Instant now_{std::chrono::hours(1)};
  uint64_t tasks_made_ = 0;
  std::vector<Due> tasks_;  // A heap; the next one is in front.
};

}  // namespace pdjob::simulation
