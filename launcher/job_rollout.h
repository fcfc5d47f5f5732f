// JobRollout: the shell of the Rollout core. It shows the core the job's processes, and carries its
// orders to the job, to workers and to routers. Loop-bound.
#pragma once

#include <deque>
#include <functional>
#include <string>

#include "launcher/job_runner.h"
#include "launcher/rollout/rollout.h"
#include "net/loop/core_runner.h"
#include "net/loop/loop.h"

namespace pdjob::launcher {

class JobRollout {
 public:
  struct Options {
    RolloutTiming timing;
    RolloutRecord record;  // Of the run's last launcher.
    uint64_t launcher = 0;
    std::function<void(const std::string&)> say;  // Gets lines for people.
    // Called when the record has changed, before anybody is told.
    std::function<void(const RolloutRecord&)> keep;
  };
  // Both must outlive it.
  JobRollout(net::Loop& loop, JobRunner& runner, Options options);
  ~JobRollout();
  JobRollout(const JobRollout&) = delete;
  JobRollout& operator=(const JobRollout&) = delete;

  // Call it after each step of the job, except of heartbeats.
  void job_changed(const Event& event);

  std::string json() const;
  std::string text() const;
  // An order that comes from no router.
  void order(const Ticket& from, const net::OrderAsked& order) {
    told_.emplace_back(OrderReceived{from, order});
    look_soon();
  }
  const Rollout& core() const { return core_; }

 private:
  using Runner = net::CoreRunner<JobRollout, Rollout, RolloutEvent, RolloutEffect>;
  friend Runner;

  bool is_router(const std::string& peer) const;
  void look_soon();
  void carry_on();
  FleetSeen fleet() const;
  void stepped(const RolloutEvent& event, const std::vector<RolloutEffect>& effects);
  void carried_out(const RolloutEvent& /*event*/) {}
  void carry_out(const TellProcess& effect) { runner_.tell(effect.peer, effect.message); }
  void carry_out(const ApplyWeights& effect);
  void carry_out(const AnswerOrder& effect);
  void carry_out(const OrderNoted& effect) { options_.say("rollout: " + effect.text); }

  net::Loop& loop_;
  JobRunner& runner_;
  const Options options_;
  RolloutRecord kept_;
  Rollout core_;
  std::deque<RolloutEvent> told_;  // By the job's last steps.
  net::TimerId next_;              // Of carry_on().
  Runner core_runner_;
};

// In Prometheus's text form.
std::string rollout_metrics(const Rollout& core);

}  // namespace pdjob::launcher
