#include "tests/simulation/slow_watch.h"

#include <algorithm>

namespace pdjob::simulation {

using launcher::Process;

namespace {

// The launcher's view is so old, at most: a heartbeat may be lost.
constexpr Duration kStale = std::chrono::seconds(2);
// Each router notices after 30 s, if it sends enough requests there.
constexpr Duration kFailsFor = std::chrono::seconds(50);
constexpr uint32_t kFetchesPlenty = 12;
// Twice what is enough, because the launcher cuts time elsewhere.
constexpr uint64_t kStepsPlenty = 16;
constexpr double kBusyPlenty = 0.04;

bool serves(const Process& process) {
  return process.state == launcher::ProcessState::kReady &&
         process.fate == launcher::Fate::kRestart && !process.suspected;
}

}  // namespace

void SlowWatch::normal(launcher::Incarnation who, Instant now) {
  if (is_slow(who)) {
    until_[who] = now;
  }
}

void SlowWatch::replaced(const launcher::Job& job, const launcher::ReplaceAsked& order,
                         Instant now) {
  const std::string& name = order.name;
  const Process* const process = job.find(name);
  if (process == nullptr || process->fate != launcher::Fate::kChangeRole) {
    return;  // It was ignored.
  }
  if (order.slow) {
    ++replaced_;
    const auto until = until_.find(process->incarnation);
    invariants_.expect(until != until_.end() && (until->second == kNever ||
                                                 now - until->second <= config_.after / 4 + kStale),
                       "only a slow worker is replaced for it, but", process->engine_id);
    moving_[name] = process->place.node;
  } else {
    ++failing_;
    const auto lives = [&job](const std::string& engine_id) {
      return std::ranges::any_of(job.processes(), [&engine_id](const Process& each) {
        return each.engine_id == engine_id;
      });
    };
    const auto is_in = [&](const auto& entry) {
      const auto& [decode, prefill] = entry.first;
      return (decode == process->engine_id && lives(prefill)) ||
             (prefill == process->engine_id && lives(decode));
    };
    invariants_.expect(std::ranges::any_of(poisoned_, is_in),
                       "only a worker of a failing pair is replaced for it, but",
                       process->engine_id);
  }
  for (const Process& other : job.processes()) {
    invariants_.expect(&other == process || other.role != process->role ||
                           other.model != process->model || serves(other),
                       "a slow or failing worker is replaced while all others serve, but not",
                       other.name);
  }
  Wait& row =
      replaced_in_.try_emplace({process->role, process->model}, Wait{.wait = 2 * config_.after})
          .first->second;
  invariants_.expect(now >= row.next, "replacements of a group come ever later, but not that of",
                     process->engine_id);
  row.wait = now >= row.next + row.wait ? 2 * config_.after : row.wait;
  row.next = now + row.wait;
  row.wait *= 2;
}

bool SlowWatch::fails(const std::string& decode, const std::string& prefill, bool calm,
                      Instant now) {
  const auto found = poisoned_.find({decode, prefill});
  if (found == poisoned_.end()) {
    return false;
  }
  Poisoned& row = found->second;
  row.first = std::min(row.first, now);
  row.fetches += 1;
  invariants_.expect(
      !calm || failing_ > 0 || now - row.first <= kFailsFor || row.fetches < kFetchesPlenty,
      "one of a pair that fails for long is replaced, but", decode, "fetches from", prefill);
  return true;
}

void SlowWatch::spawned(const launcher::Job& job, const launcher::Spawn& spawn,
                        const std::vector<launcher::Node>& nodes, Instant now) {
  const auto moved = moving_.extract(spawn.name);
  if (moved.empty() || moved.mapped() != spawn.place.node) {
    return;
  }
  const Process& process = *job.find(spawn.name);
  const uint32_t level = job.trust().level(spawn.place.node, now);
  for (const launcher::Node& node : nodes) {
    uint64_t cores = process.demand.cores;
    uint64_t gpus = process.demand.gpus;
    for (const Process& other : job.processes()) {
      cores += other.place.node == node.name ? other.demand.cores : 0;
      gpus += other.place.node == node.name ? other.demand.gpus : 0;
    }
    const bool has_labels = std::ranges::all_of(process.demand.labels, [&](const auto& label) {
      return node.labels.contains(label.first);
    });
    invariants_.expect(
        node.name == spawn.place.node || !has_labels || cores > node.cores ||
            gpus * process.demand.gpu_percent > node.gpus.size() * launcher::kWholeGpu ||
            job.trust().level(node.name, now) >= level,
        "a slow worker leaves its node for", node.name, "but not", spawn.name);
  }
}

bool SlowWatch::must_be_noticed(const std::vector<const Process*>& group,
                                const std::map<std::string, Seen>& before) const {
  const double busy =
      kBusyPlenty * std::chrono::duration<double, std::micro>(config_.after / 4).count();
  size_t slow = 0;
  for (const Process* process : group) {
    const auto found = before.find(process->engine_id);
    if (!serves(*process) || found == before.end()) {
      return false;
    }
    const net::StepTotals& then = found->second.steps;
    const net::StepTotals& steps = process->load.steps;
    if (steps.steps < then.steps + kStepsPlenty || static_cast<double>(steps.us - then.us) < busy) {
      return false;
    }
    slow += is_slow(process->incarnation) ? 1 : 0;
  }
  return group.size() >= 3 && 2 * slow < group.size();
}

void SlowWatch::look(const launcher::Job& job, bool sleeps, Instant now) {
  const Duration slice = config_.after / 4;
  if (!config_.on() || now < looked_ + slice) {
    return;
  }
  looked_ = now;
  std::map<Group, std::vector<const Process*>> groups;
  for (const Process& process : job.processes()) {
    if (process.is_worker()) {
      groups[{process.role, process.model}].push_back(&process);
    }
  }
  std::map<std::string, Seen> seen;
  for (const auto& [name, group] : groups) {
    const bool noticed = !sleeps && job.state() == launcher::JobState::kReady &&
                         !replaced_in_.contains(name) && must_be_noticed(group, seen_);
    for (const Process* process : group) {
      Seen& now_seen = seen[process->engine_id];
      now_seen.steps = process->load.steps;
      if (noticed && is_slow(process->incarnation)) {
        now_seen.slow_for = seen_[process->engine_id].slow_for + slice;
      }
      invariants_.expect(now_seen.slow_for <= 3 * config_.after,
                         "a worker that is slow for long is replaced, but not", process->engine_id);
    }
  }
  seen_ = std::move(seen);
}

}  // namespace pdjob::simulation
