#include "tests/simulation/job_watch.h"

#include <algorithm>
#include <variant>

namespace pdjob::simulation {

using launcher::Process;
using launcher::ProcessState;

namespace {

std::string words(const launcher::Event& event) {
  if (const auto* message = std::get_if<launcher::MessageArrived>(&event)) {
    return std::holds_alternative<net::HeartbeatSent>(message->message)
               ? ""
               : "hears " + message->peer + " " + std::to_string(message->message.index());
  }
  if (const auto* exited = std::get_if<launcher::ProcessExited>(&event)) {
    return "hears of an end: " + exited->how;
  }
  if (const auto* failed = std::get_if<launcher::ProbeFailed>(&event)) {
    return "probe " + std::to_string(failed->probe) + " failed: " + failed->reason;
  }
  return std::holds_alternative<launcher::TimePassed>(event)
             ? ""
             : "event " + std::to_string(event.index());
}

std::string words(const launcher::Effect& effect) {
  if (const auto* spawn = std::get_if<launcher::Spawn>(&effect)) {
    return "  > spawn " + spawn->engine_id + " on " + spawn->place.node;
  }
  if (const auto* probe = std::get_if<launcher::Probe>(&effect)) {
    return "  > probe " + std::to_string(probe->probe) + " " + probe->router + " " +
           probe->prefill + " " + probe->decode;
  }
  if (const auto* signal = std::get_if<launcher::SendSignal>(&effect)) {
    return std::string("  > ") + to_string(signal->signal) + " " +
           std::to_string(signal->incarnation.value);
  }
  const auto* send = std::get_if<launcher::Send>(&effect);
  return send == nullptr || std::holds_alternative<net::LoadReported>(send->message)
             ? ""
             : "  > tells " + send->peer + " " + std::to_string(send->message.index());
}

}  // namespace

std::vector<std::string> job_words(const launcher::Event& event,
                                   const std::vector<launcher::Effect>& effects) {
  std::vector<std::string> lines = {words(event)};
  for (const launcher::Effect& effect : effects) {
    lines.push_back(words(effect));
  }
  std::erase(lines, "");
  return lines;
}

void JobWatch::retired(const std::string& name) {
  planned_.erase(name);
  retired_.insert(name);
  ++counts_.retired;
}

void JobWatch::on(const launcher::Job& job, const launcher::Probe& probe) {
  ++counts_.probes;
  for (const std::string& name : {probe.router, probe.prefill, probe.decode}) {
    if (const Process* process = name.empty() ? nullptr : job.find(name)) {
      probes_[probe.probe].engine_ids.push_back(process->engine_id);
    }
  }
  probes_[probe.probe].moves_kv = !probe.prefill.empty();
}

void JobWatch::on(const launcher::Spawn& spawn) {
  ++counts_.starts;
  const bool runs = std::ranges::any_of(
      cluster_.running(), [&](const auto& each) { return each.second.spec.name == spawn.name; });
  invariants_.expect(!runs, "a process is started only when it does not run, but not", spawn.name);
  invariants_.expect(!retired_.contains(spawn.name), "a retired process is not started, but",
                     spawn.name);
  invariants_.expect(!lost_.contains(spawn.place.node), "a lost node gets no process, but",
                     spawn.place.node);
}

void JobWatch::on_success(const launcher::ProbeSucceeded& event) {
  const auto through = probes_.extract(event.probe);
  invariants_.expect(!through.empty(), "a probe that succeeds was asked for, but not", event.probe);
  if (!through.empty() && (event.kv_bytes > 0 || !through.mapped().moves_kv)) {
    const std::vector<std::string>& engines = through.mapped().engine_ids;
    proved_.insert(engines.begin(), engines.end());
  }
}

void JobWatch::after(const launcher::Job& job, const launcher::Event& event,
                     const std::vector<launcher::Effect>& effects, Instant now) {
  if (!probes_.empty()) {
    last_probe_ = now;
  }
  if (const auto* success = std::get_if<launcher::ProbeSucceeded>(&event)) {
    on_success(*success);
  } else if (const auto* failed = std::get_if<launcher::ProbeFailed>(&event)) {
    probes_.erase(failed->probe);
  } else if (const auto* lost = std::get_if<launcher::NodeLost>(&event)) {
    lost_.insert(lost->name);
  } else if (const auto* joined = std::get_if<launcher::NodeJoined>(&event)) {
    lost_.erase(joined->node.name);
  }
  for (const launcher::Effect& effect : effects) {
    if (const auto* probe = std::get_if<launcher::Probe>(&effect)) {
      on(job, *probe);
    } else if (const auto* spawn = std::get_if<launcher::Spawn>(&effect)) {
      on(*spawn);
    }
  }
  const auto* message = std::get_if<launcher::MessageArrived>(&event);
  if (message != nullptr && std::holds_alternative<net::HeartbeatSent>(message->message)) {
    return;  // It makes nothing ready.
  }
  for (const Process& process : job.processes()) {
    invariants_.expect(process.state != ProcessState::kReady || proved(process.engine_id),
                       "a process is ready only if a probe went through it, but not", process.name);
  }
}

bool JobWatch::well(const launcher::Job& job) const {
  const auto is_well = [&](const Process& process) {
    const auto role = roles_.find(process.name);
    return process.state == ProcessState::kReady && !retired_.contains(process.name) &&
           (role == roles_.end() || role->second == process.role);
  };
  return job.state() == launcher::JobState::kReady && std::ranges::all_of(job.processes(), is_well);
}

void JobWatch::expect_all_well(const launcher::Job& job) {
  invariants_.expect(job.state() == launcher::JobState::kReady, "the job is ready, but",
                     job.waiting_for());
  for (const Process& process : job.processes()) {
    invariants_.expect(process.state == ProcessState::kReady,
                       "every process is ready after the faults, but not", process.name,
                       to_string(process.state));
    invariants_.expect(!retired_.contains(process.name), "a retired process goes, but not",
                       process.name);
    const auto role = roles_.find(process.name);
    invariants_.expect(role == roles_.end() || role->second == process.role,
                       "a role changes when asked, but not that of", process.name);
  }
  for (const std::string& name : planned_) {
    invariants_.expect(job.find(name) != nullptr, "no process is forgotten, but", name);
  }
}

}  // namespace pdjob::simulation
