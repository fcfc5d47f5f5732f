// SimProcess: one life of one simulated process, with production code on its virtual timers. Each
// turn takes time, so that anything can happen between two of them. A dead process runs nothing any
// more. A stopped one (SIGSTOP) runs what came meanwhile, in order, when it continues.
#pragma once

#include <algorithm>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "common/random.h"
#include "net/loop/timers.h"
#include "tests/simulation/sim_loop.h"

namespace pdjob::simulation {

class SimProcess final : public net::Timers {
 public:
  using Task = std::function<void()>;

  // A turn takes up to `turn_max`.
  SimProcess(SimLoop& loop, std::string name, Duration turn_max, uint64_t seed)
      : loop_(loop), name_(std::move(name)), turn_max_(turn_max), random_(seed) {}
  SimProcess(const SimProcess&) = delete;
  SimProcess& operator=(const SimProcess&) = delete;
  ~SimProcess() { die(); }

  const std::string& name() const { return name_; }
  bool alive() const { return state_->alive; }
  bool stopped() const { return state_->stopped; }
  void die() {
    state_->alive = false;
    state_->tasks.clear();
  }
  void stop() { state_->stopped = true; }
  void go_on() {
    state_->stopped = false;
    while (!state_->held.empty() && !state_->stopped) {
      const uint64_t task = state_->held.front();
      state_->held.pop_front();
      state_->run(task);
    }
  }

  Instant now() const override { return loop_.now(); }
  Instant exact_now() const override { return loop_.now(); }
  net::TimerId call_at(Instant when, Task work) override {
    const uint64_t task = ++state_->tasks_made;
    if (state_->alive) {
      state_->tasks.emplace(task, std::move(work));
      const Duration turn(1 + random_.below(static_cast<uint64_t>(turn_max_.count())));
      loop_.at(std::max(when, now() + turn), [state = state_, task] { state->due(task); });
    }
    return net::TimerId{task};
  }
  void cancel(net::TimerId timer) override { state_->tasks.erase(timer.value); }
  void post(Task work) { call_at(now(), std::move(work)); }

 private:
  // Outlives the process, because the loop still has its tasks.
  struct State {
    bool alive = true;
    bool stopped = false;
    uint64_t tasks_made = 0;
    std::map<uint64_t, Task> tasks;
    std::deque<uint64_t> held;

    void due(uint64_t task) {
      if (stopped) {
        held.push_back(task);
      } else {
        run(task);
      }
    }
    void run(uint64_t task) {
      if (auto found = tasks.extract(task)) {
        found.mapped()();
      }
    }
  };

  SimLoop& loop_;
  const std::string name_;
  const Duration turn_max_;
  Random random_;
  const std::shared_ptr<State> state_ = std::make_shared<State>();
};

}  // namespace pdjob::simulation
