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
  return std::holds_alternative<TimePassed>(event) ? "" : "event " + std::to_string(event.index());
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

struct Use {
  uint64_t cores = 0;
  std::map<std::string, uint32_t> gpus;  // Percent.
};

// On a node with such a use.
bool has_gpus(const launcher::Node& node, const Use& use, const launcher::Demand& demand) {
  const auto free = std::ranges::count_if(node.gpus, [&](const std::string& gpu) {
    const auto used = use.gpus.find(gpu);
    return (used == use.gpus.end() ? 0 : used->second) + demand.gpu_percent <= launcher::kWholeGpu;
  });
  return free >= demand.gpus;
}

std::map<std::string, Use> uses_of(const launcher::Job& job) {
  std::map<std::string, Use> uses;
  for (const Process& process : job.processes()) {
    for (const launcher::PlacePart& part : process.place.parts()) {
      Use& use = uses[part.node];
      use.cores += process.demand.cores;
      for (const std::string& gpu : part.gpus) {
        use.gpus[gpu] += process.demand.gpu_percent;
      }
    }
  }
  uses.erase("");
  return uses;
}

bool accepts(const launcher::Node& node, const launcher::Demand& demand) {
  return !node.routers_only && (demand.labels.empty() || node.labels.contains("disk"));
}

// After the faults. One that waits is right to do so: check_waits() saw it. No probe can prove a
// router while there is no worker.
bool may_stay(const launcher::Job& job, const Process& process) {
  const bool alone = std::ranges::all_of(job.processes(), &Process::is_router);
  return process.state == ProcessState::kReady || process.state == ProcessState::kWaiting ||
         (alone && process.state == ProcessState::kRegistered);
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

void JobWatch::on(const launcher::Job& job, const launcher::Spawn& spawn) {
  ++counts_.starts;
  spawned_.insert(spawn.name);
  const bool runs = std::ranges::any_of(machines_.running(), [&](const auto& each) {
    // A wide one whose other part died was told to end, too.
    return each.second.spec.name == spawn.name && !given_up(each.first) &&
           !placed_.at(each.first).wide;
  });
  placed_[spawn.incarnation] = {
      .node = spawn.place.node, .wide = !spawn.place.more.empty(), .given_up = kNever};
  invariants_.expect(!runs, "a process is started only when it does not run, but not", spawn.name);
  invariants_.expect(!retired_.contains(spawn.name), "a retired process is not started, but",
                     spawn.name);
  const auto node = nodes_.find(spawn.place.node);
  const Process* const process = job.find(spawn.name);
  invariants_.expect(node != nodes_.end(), "a lost node gets no process, but", spawn.place.node);
  invariants_.expect(node == nodes_.end() || process == nullptr || process->is_router() ||
                         accepts(node->second, process->demand),
                     "a process runs only where it may, but not", spawn.name);
}

void JobWatch::on(const launcher::Job& job, const launcher::SendSignal& signal) {
  const auto process =
      std::ranges::find(job.processes(), signal.incarnation, &Process::incarnation);
  const bool goes_on =
      machines_.runs(signal.incarnation) &&
      (process == job.processes().end() ? !given_up(signal.incarnation)
                                        : process->fate == launcher::Fate::kRestart);
  invariants_.expect(!calm_ || signal.signal != launcher::Signal::kKill || !goes_on,
                     "a process that does its work is not killed, but", signal.incarnation.value);
}

// Processes come, leave and change their roles as their groups want it.
void JobWatch::follow(const launcher::Job& job) {
  std::set<std::string> stay;
  for (const Process& process : job.processes()) {
    if (process.fate == launcher::Fate::kEnd) {
      continue;
    }
    stay.insert(process.name);
    retired_.erase(process.name);  // A name may come again.
    planned(process.name);
    if (process.is_worker()) {
      roles_[process.name] =
          process.fate == launcher::Fate::kChangeRole ? process.next_role : process.role;
    }
  }
  const std::set<std::string> before = planned_;
  for (const std::string& name : before) {
    if (stay.contains(name)) {
      continue;
    }
    retired(name);
    for (const launcher::JobGroup& group : job.groups()) {
      invariants_.expect(
          roles_.at(name) != group.role || members_of(group, job).size() >= group.size(),
          "a process leaves only if its group keeps what it wants, but not", name);
    }
  }
}

// Orders that did not reach the ledger are lost with their launcher. No process that runs is lost.
void JobWatch::adopt(const launcher::JobRecord& record, Instant now) {
  probes_.clear();
  last_probe_ = now;
  nodes_.clear();
  roles_.clear();
  std::set<std::string> there;
  std::set<launcher::Incarnation> known;
  for (const launcher::ProcessRecord& process : record.processes) {
    const bool ends = process.fate == launcher::Fate::kEnd;
    there.insert(process.name);
    known.insert(process.incarnation);
    ends ? void(planned_.erase(process.name)) : void(planned_.insert(process.name));
    ends ? void(retired_.insert(process.name)) : void(retired_.erase(process.name));
    roles_[process.name] =
        process.fate == launcher::Fate::kChangeRole ? process.next_role : process.role;
  }
  std::erase_if(planned_, [&](const std::string& name) {
    // A job that ends leaves what runs, and no process that only waits for a node.
    invariants_.expect(there.contains(name) || !spawned_.contains(name) || record.warm,
                       "what ever ran and was not retired is in the ledger, but not", name);
    return !there.contains(name);
  });
  for (const auto& [incarnation, order] : machines_.running()) {
    invariants_.expect(known.contains(incarnation) || given_up(incarnation),
                       "what runs is in the ledger, but not", order.spec.engine_id);
  }
}

bool JobWatch::given_up(launcher::Incarnation incarnation) const {
  const auto placed = placed_.find(incarnation);
  return outlives_ > Duration::zero() && placed != placed_.end() &&
         placed->second.given_up != kNever;
}

void JobWatch::lose(const std::string& node, Instant now) {
  nodes_.erase(node);
  for (auto& [incarnation, placed] : placed_) {
    if (placed.node == node) {
      placed.given_up = std::min(placed.given_up, now);
    }
  }
}

// Nodes that did not come back to a new launcher.
void JobWatch::lose_absent(Instant now) {
  for (auto& [incarnation, placed] : placed_) {
    if (!nodes_.contains(placed.node)) {
      placed.given_up = std::min(placed.given_up, now);
    }
  }
}

void JobWatch::look(Instant now) {
  for (const auto& [incarnation, order] : machines_.running()) {
    if (given_up(incarnation)) {
      const Placed& placed = placed_.at(incarnation);
      const Instant from = std::max(placed.given_up, outlives_from_(placed.node));
      invariants_.expect(from == kNever || now <= from + outlives_,
                         "no process outlives its node for long, but", order.spec.engine_id);
    }
  }
}

void JobWatch::begin(const std::vector<launcher::Node>& nodes) {
  for (const launcher::Node& node : nodes) {
    nodes_[node.name] = node;
  }
}

void JobWatch::check_promises(const launcher::Job& job) {
  for (const auto& [name, use] : uses_of(job)) {
    const auto node = nodes_.find(name);
    invariants_.expect(node == nodes_.end() || use.cores <= node->second.cores,
                       "a core is promised once, but not on", name);
    for (const auto& [gpu, percent] : use.gpus) {
      invariants_.expect(percent <= launcher::kWholeGpu, "a GPU is promised once, but not on",
                         name);
    }
  }
}

void JobWatch::check_waits(const launcher::Job& job) {
  const auto uses = uses_of(job);
  for (const Process& process : job.processes()) {
    if (process.state != ProcessState::kWaiting) {
      continue;
    }
    std::map<std::string, uint32_t> rooms;  // By cluster, the nodes that could take a part.
    for (const auto& [name, node] : nodes_) {
      const auto found = uses.find(name);
      const Use use = found == uses.end() ? Use{} : found->second;
      const bool room = accepts(node, process.demand) &&
                        use.cores + process.demand.cores <= node.cores &&
                        has_gpus(node, use, process.demand);
      rooms[node.cluster] += room ? 1 : 0;
    }
    for (const auto& [cluster, count] : rooms) {
      invariants_.expect(count < process.demand.parts,
                         "a process waits only while no node has room, but there is in", cluster);
    }
  }
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
    lose(lost->name, now);
  } else if (const auto* joined = std::get_if<launcher::NodeJoined>(&event)) {
    nodes_[joined->node.name] = joined->node;
  }
  if (job.state() == launcher::JobState::kStarting || job.state() == launcher::JobState::kReady) {
    follow(job);
    check_spares(job);
  }
  for (const launcher::Effect& effect : effects) {
    if (const auto* probe = std::get_if<launcher::Probe>(&effect)) {
      on(job, *probe);
    } else if (const auto* spawn = std::get_if<launcher::Spawn>(&effect)) {
      on(job, *spawn);
    } else if (const auto* signal = std::get_if<launcher::SendSignal>(&effect)) {
      on(job, *signal);
    } else if (std::holds_alternative<launcher::ReportAdopted>(effect)) {
      lose_absent(now);
    }
  }
  const auto* message = std::get_if<launcher::MessageArrived>(&event);
  if (message != nullptr && std::holds_alternative<net::HeartbeatSent>(message->message)) {
    return;  // It makes nothing ready.
  }
  started_ = started_ || std::holds_alternative<launcher::Started>(event);
  bool waits = false;
  for (const Process& process : job.processes()) {
    invariants_.expect(process.state != ProcessState::kReady || proved(process.engine_id),
                       "a process is ready only if a probe went through it, but not", process.name);
    waits = waits || process.state == ProcessState::kWaiting;
  }
  if (std::ranges::any_of(effects, [](const launcher::Effect& effect) {
        return std::holds_alternative<launcher::Spawn>(effect);
      })) {
    check_promises(job);
  }
  if (waits && started_ && !job.adopting() && job.state() != launcher::JobState::kDraining) {
    check_waits(job);
  }
}

bool JobWatch::well(const launcher::Job& job) const {
  const auto is_well = [&](const Process& process) {
    const auto role = roles_.find(process.name);
    return may_stay(job, process) && !retired_.contains(process.name) &&
           (role == roles_.end() || role->second == process.role);
  };
  const auto has_its_size = [&](const launcher::JobGroup& group) {
    return members_of(group, job).size() == group.size();
  };
  return job.state() == launcher::JobState::kReady && !job.adopting() &&
         std::ranges::all_of(job.processes(), is_well) &&
         std::ranges::all_of(job.groups(), has_its_size);
}

// A warm worker without requests is a loss while one that should serve is missing.
void JobWatch::check_spares(const launcher::Job& job) {
  for (const launcher::JobGroup& group : job.groups()) {
    uint32_t spares = 0;
    uint32_t serving = 0;
    for (const Process* each : members_of(group, job)) {
      spares += each->stands_by() ? 1U : 0U;
      serving += each->state == ProcessState::kReady && !each->suspected && !each->spare &&
                         each->fate == launcher::Fate::kRestart
                     ? 1U
                     : 0U;
    }
    invariants_.expect(spares == 0 || serving >= group.wanted,
                       "a spare serves while its group lacks a worker, but not in", group.name);
    invariants_.expect(spares == 0 || group.spares > 0, "only a group with spares has some, but",
                       group.name);
  }
}

void JobWatch::expect_all_well(const launcher::Job& job) {
  invariants_.expect(job.state() == launcher::JobState::kReady, "the job is ready, but",
                     job.waiting_for());
  for (const Process& process : job.processes()) {
    invariants_.expect(may_stay(job, process), "every process is ready after the faults, but not",
                       process.name, to_string(process.state));
    invariants_.expect(!retired_.contains(process.name), "a retired process goes, but not",
                       process.name);
    const auto role = roles_.find(process.name);
    invariants_.expect(role == roles_.end() || role->second == process.role,
                       "a role changes when asked, but not that of", process.name);
  }
  for (const Process& process : job.processes()) {
    for (const launcher::PlacePart& part : process.place.more) {
      invariants_.expect(
          !process.alive() || machines_.followers().contains({part.node, process.incarnation}),
          "each part of an engine runs, but not that of", process.name, "on", part.node);
    }
  }
  for (const auto& [part, cluster] : machines_.followers()) {
    const auto whole = std::ranges::find(job.processes(), part.second, &Process::incarnation);
    invariants_.expect(whole != job.processes().end() && whole->alive(),
                       "no part of an engine runs alone, but there is one on", part.first);
  }
  for (const launcher::JobGroup& group : job.groups()) {
    invariants_.expect(members_of(group, job).size() == group.size(),
                       "a group has its size, but not", group.name);
  }
  for (const std::string& name : planned_) {
    invariants_.expect(job.find(name) != nullptr, "no process is forgotten, but", name);
  }
}

}  // namespace pdjob::simulation
