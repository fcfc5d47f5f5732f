// The Keeper's queues: which job is next, what makes room for it, and where its launcher runs.
#include <algorithm>
#include <functional>
#include <set>
#include <tuple>
#include <utility>

#include "common/config/config_text.h"
#include "launcher/placement/node_share.h"
#include "launcher/pool/keeper.h"
#include "launcher/pool/room.h"

namespace pdjob::launcher {

std::vector<PoolJob*> Keeper::waiting() {
  std::vector<PoolJob*> waiting;
  for (PoolJob& job : ledger_.jobs) {
    if (job.state == PoolJobState::kQueued) {
      waiting.push_back(&job);
    }
  }
  std::ranges::stable_sort(waiting, std::greater<>(),
                           [](const PoolJob* job) { return job->order.priority; });
  return waiting;
}

void Keeper::schedule(Turn& turn) {
  std::vector<Node> free = free_nodes();
  std::set<std::string> held_up;  // Queues.
  for (PoolJob* const job : waiting()) {
    if (held_up.contains(job->order.queue)) {
      job->why = "an earlier job of its queue waits";
      continue;
    }
    if (PoolJob* const before = one_before(*job); before != nullptr) {
      if (!take_over(*before, *job, turn)) {
        held_up.insert(job->order.queue);
      }
      continue;
    }
    const auto shares = placer_(job->order, free);
    job->why = shares ? over_quota(*job, *shares) : shares.error().message;
    if (shares && job->why.empty() && start(*job, *shares, turn)) {
      for (const Share& share : *shares) {
        take_from(free, share);
      }
      continue;
    }
    if ((!shares || free_port() == 0) && make_room_for(*job, turn)) {
      return;
    }
    held_up.insert(job->order.queue);
  }
}

// Null: there is none of the same name that still holds something.
PoolJob* Keeper::one_before(const PoolJob& job) {
  const auto at = std::ranges::find_if(ledger_.jobs, [&](const PoolJob& other) {
    return other.order.name == job.order.name && !other.shares.empty();
  });
  return at == ledger_.jobs.end() ? nullptr : &*at;
}

// The job has the shares of the one before, and all that runs there. Otherwise it waits until that
// one has ended: they have the same files.
bool Keeper::take_over(PoolJob& before, PoolJob& job, Turn& turn) {
  const bool is_warm = before.state == PoolJobState::kWarm;
  const bool fits = is_warm && before.order.workers == job.order.workers &&
                    is_here(before.launcher.node) &&
                    std::ranges::all_of(before.shares, [&](const HeldShare& held) {
                      return runs(held.agent) && is_here(held.agent.node);
                    });
  std::vector<Share> shares;
  for (const HeldShare& held : before.shares) {
    shares.push_back(held.share);
  }
  job.why = fits ? over_quota(job, shares) : "the job of its name before it still ends";
  if (!job.why.empty()) {
    if (is_warm) {
      begin_ending(before, false, before.why, turn);
    }
    return false;
  }
  job.state = PoolJobState::kRunning;
  job.port = before.port;
  job.launcher = {.node = before.launcher.node, .due = turn.now};
  job.shares = std::exchange(before.shares, {});
  job.shares_made = before.shares_made;
  job.start = before.start;
  turn.emit(SayOfPool{"job " + job.order.name + " starts with the warm workers of the last one"});
  begin_ending(before, false, before.why, turn);
  run(job, turn);
  return true;
}

bool Keeper::start(PoolJob& job, const std::vector<Share>& shares, Turn& turn) {
  std::vector<std::string> nodes;
  for (const Share& share : shares) {
    nodes.push_back(share.node);
  }
  const std::string node = node_for_launcher(job, nodes);
  const uint16_t port = free_port();
  if (node.empty() || port == 0) {
    job.why = port == 0 ? "all ports for launchers are taken: start the keeper with more (--ports)"
                        : "port " + std::to_string(job.order.door) +
                              " of its routers is taken by another job on each node";
    return false;
  }
  job.state = PoolJobState::kRunning;
  job.port = port;
  job.start = next_incarnation();
  job.launcher = {.node = node, .due = turn.now};
  for (const Share& share : shares) {
    job.shares.push_back({.number = ++job.shares_made,
                          .share = share,
                          .agent = {.node = share.node, .due = turn.now}});
  }
  turn.emit(SayOfPool{"job " + job.order.name + " starts: " + count_text(job.cores(), "core") +
                      " and " + portion_text(job.gpu_percent()) + " GPUs" + " of " +
                      count_text(job.shares.size(), "node")});
  run(job, turn);
  return true;
}

// Takes what comes free anyway, or has warm jobs and batches make room. True: the others wait, so
// that nobody takes it meanwhile.
bool Keeper::make_room_for(PoolJob& job, Turn& turn) {
  const auto fits_without = [&](const std::set<uint64_t>& ids) {
    const auto shares = placer_(job.order, free_nodes(ids));
    return shares && over_quota(job, *shares).empty() && free_port(ids) != 0;
  };
  const auto gives_way = [&](const PoolJob& other) {
    return other.state == PoolJobState::kWarm ||
           (other.state == PoolJobState::kRunning && other.order.batch && !job.order.batch &&
            other.order.priority < job.order.priority);
  };
  std::set<uint64_t> gone;
  std::vector<PoolJob*> victims;
  for (PoolJob& other : ledger_.jobs) {
    if (other.state == PoolJobState::kEnding) {
      gone.insert(other.id);
    } else if (gives_way(other)) {
      victims.push_back(&other);
    }
  }
  if (!gone.empty() && fits_without(gone)) {
    job.why = "it gets what jobs that end give back";
    return !job.order.batch;
  }
  // Warm ones first, the oldest of them; then the least important, and of equal ones the latest.
  const auto rank = [](const PoolJob* victim) {
    const bool warm = victim->state == PoolJobState::kWarm;
    return std::tuple(!warm, warm ? 0 : victim->order.priority, warm ? victim->id : ~victim->id);
  };
  std::ranges::sort(victims, {}, rank);
  std::vector<PoolJob*> chosen;
  bool fits = false;
  for (size_t i = 0; i < victims.size() && !fits; ++i) {
    chosen.push_back(victims[i]);
    gone.insert(victims[i]->id);
    fits = fits_without(gone);
  }
  if (!fits) {
    return false;
  }
  std::erase_if(chosen, [&](const PoolJob* victim) {  // Those that make no difference stay.
    gone.erase(victim->id);
    const bool spared = fits_without(gone);
    if (!spared) {
      gone.insert(victim->id);
    }
    return spared;
  });
  job.why = "it gets what others give back";
  for (PoolJob* const victim : chosen) {
    const bool warm = victim->state == PoolJobState::kWarm;
    turn.emit(SayOfPool{"job " + victim->order.name + " makes room for " + job.order.name});
    begin_ending(*victim, !warm, warm ? victim->why : "it made room for " + job.order.name, turn);
  }
  return !job.order.batch;
}

// Warm jobs do not count, because they give way.
std::string Keeper::over_quota(const PoolJob& job, const std::vector<Share>& shares) const {
  const auto quota = std::ranges::find(ledger_.quotas, job.order.queue, &QueueQuota::queue);
  if (quota == ledger_.quotas.end()) {
    return "";
  }
  uint64_t cores = 0;
  uint64_t gpu_percent = 0;
  for (const PoolJob& other : ledger_.jobs) {
    if (other.order.queue == job.order.queue && other.state != PoolJobState::kWarm) {
      cores += other.cores();
      gpu_percent += other.gpu_percent();
    }
  }
  for (const Share& share : shares) {
    cores += share.cores;
    gpu_percent += percent_of_all(share.gpus, share.gpu_parts);
  }
  const auto over = [&](const std::string& would, uint64_t most) {
    return "queue " + job.order.queue + " would have " + would + ", its quota is " +
           std::to_string(most);
  };
  if (quota->cores > 0 && cores > quota->cores) {
    return over(std::to_string(cores) + " cores", quota->cores);
  }
  return quota->gpus > 0 && gpu_percent > quota->gpus * kWholeGpu
             ? over(portion_text(gpu_percent) + " GPUs", quota->gpus)
             : "";
}

std::string Keeper::node_for_launcher(const PoolJob& job,
                                      const std::vector<std::string>& first) const {
  std::set<std::string> taken;
  for (const PoolJob& other : ledger_.jobs) {
    if (job.order.door != 0 && other.order.door == job.order.door && &other != &job) {
      taken.insert(other.launcher.node);
    }
  }
  const auto can = [&](const std::string& node) { return is_here(node) && !taken.contains(node); };
  if (const auto node = std::ranges::find_if(first, can); node != first.end()) {
    return *node;
  }
  const auto any = std::ranges::find_if(nodes_, [&](const auto& each) { return can(each.first); });
  return any == nodes_.end() ? "" : any->first;
}

uint16_t Keeper::free_port(const std::set<uint64_t>& without) const {
  std::set<uint32_t> taken;
  for (const PoolJob& job : ledger_.jobs) {
    if (!without.contains(job.id)) {
      taken.insert(job.port);
    }
  }
  for (uint32_t port = setting_.first_port; port <= setting_.last_port; ++port) {
    if (!taken.contains(port)) {
      return static_cast<uint16_t>(port);
    }
  }
  return 0;
}

}  // namespace pdjob::launcher
