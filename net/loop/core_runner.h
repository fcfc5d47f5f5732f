// CoreRunner: how a shell on a loop runs its core. The core sees one event at a time: events that
// arise while effects are carried out wait. It wakes the core when it asked for that. Loop-bound.
//
// The core has the shape of common/core.h, and takes a TimePassed. Its shell has a
// carry_out() for each kind of effect, and two that may do nothing: stepped(event, effects), before
// the effects, and carried_out(event), after them.
#pragma once

#include <deque>
#include <utility>
#include <variant>
#include <vector>

#include "common/core.h"
#include "common/time.h"
#include "net/loop/loop.h"

namespace pdjob::net {

template <class Shell, class Core, class Event, class Effect>
class CoreRunner {
 public:
  // All three must outlive it.
  CoreRunner(Loop& loop, Core& core, Shell& shell) : loop_(loop), core_(core), shell_(shell) {}
  ~CoreRunner() { loop_.cancel(timer_); }
  CoreRunner(const CoreRunner&) = delete;
  CoreRunner& operator=(const CoreRunner&) = delete;

  void submit(Event event) {
    if (stepping_) {
      waiting_.push_back(std::move(event));
      return;
    }
    stepping_ = true;
    step(event);
    for (; !waiting_.empty(); waiting_.pop_front()) {
      step(waiting_.front());
    }
    stepping_ = false;
    arm_timer();
  }
  bool stepping() const { return stepping_; }

 private:
  void step(const Event& event) {
    effects_.clear();
    core_.step(event, loop_.now(), effects_);
    shell_.stepped(event, effects_);
    for (Effect& effect : effects_) {
      std::visit([this](auto& one) { shell_.carry_out(one); }, effect);
    }
    shell_.carried_out(event);
  }

  // A timer that is early costs less than to move it with each step.
  void arm_timer() {
    const Instant due = core_.next_wakeup();
    if (due >= timer_at_) {
      return;
    }
    loop_.cancel(timer_);
    timer_at_ = due;
    timer_ = loop_.call_at(due, [this] {
      timer_at_ = kNever;
      submit(TimePassed{});
    });
  }

  Loop& loop_;
  Core& core_;
  Shell& shell_;
  std::deque<Event> waiting_;
  std::vector<Effect> effects_;
  bool stepping_ = false;
  TimerId timer_;
  Instant timer_at_ = kNever;
};

}  // namespace pdjob::net
