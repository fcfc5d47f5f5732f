// A Job for tests of scaling: its routers confirm at once, its processes register as soon as they
// are spawned, and each probe succeeds. Test double. Value.
#pragma once

#include <deque>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "launcher/job/job.h"

namespace pdjob::launcher {

class LivingJob {
 public:
  explicit LivingJob(std::vector<ProcessPlan> plan, const JobSetting& setting = {})
      : job(std::move(plan), JobTiming{}, "n", setting) {
    tell(Started{});
  }

  void tell(Event event) {
    std::deque<Event> events{std::move(event)};
    for (; !events.empty(); events.pop_front()) {
      std::vector<Effect> effects;
      job.step(events.front(), now, effects);
      for (const Effect& effect : effects) {
        std::visit([&](const auto& one) { answer(one, events); }, effect);
      }
    }
  }
  void load(const std::string& name, net::WorkerLoad load) {
    tell(MessageArrived{
        name,
        net::HeartbeatSent{.name = name, .engine_id = job.find(name)->engine_id, .load = load}});
  }
  void beat_all() {
    for (const Process& process : job.processes()) {
      if (process.serving()) {
        load(process.name, process.load);
      }
    }
  }

  Job job;
  Instant now{std::chrono::seconds(1000)};
  bool drains = true;     // Workers answer a Drain at once, and end.
  bool registers = true;  // Processes register as soon as they are spawned.
  bool proves = true;     // Probes succeed at once; otherwise they never end.

 private:
  template <class Any>
  void answer(const Any& /*effect*/, std::deque<Event>& /*events*/) {}
  void answer(const Spawn& spawn, std::deque<Event>& events) {
    events.emplace_back(Spawned{spawn.incarnation, 100, spawn.place.node});
    if (registers) {
      events.emplace_back(MessageArrived{
          spawn.name, net::Registered{.worker = {.engine_id = spawn.engine_id, .port = 1}}});
    }
  }
  void answer(const Probe& probe, std::deque<Event>& events) {
    if (!proves) {
      return;
    }
    events.emplace_back(ProbeSucceeded{.probe = probe.probe, .kv_bytes = 1});
  }
  void answer(const SendSignal& signal, std::deque<Event>& events) {
    events.emplace_back(ProcessExited{signal.incarnation, "signal", false, signal.node});
  }
  void answer(const Send& send, std::deque<Event>& events) {
    const Process* const process = job.find(send.peer);
    if (const auto* told = std::get_if<net::Membership>(&send.message)) {
      events.emplace_back(MessageArrived{
          send.peer,
          net::MembershipApplied{.engine_id = process->engine_id, .version = told->version}});
    } else if (std::holds_alternative<net::Drain>(send.message) && drains) {
      events.emplace_back(
          ProcessExited{process->incarnation, "exit code 0", false, process->place.node});
    }
  }
};

}  // namespace pdjob::launcher
