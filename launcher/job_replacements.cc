#include "launcher/job_replacements.h"

#include <chrono>
#include <map>
#include <utility>
#include <vector>

namespace pdjob::launcher {

namespace {

constexpr Duration kReplacementsTick = std::chrono::milliseconds(500);

// Nodes with other GPUs than their number tells apart have labels that do.
std::string kind_of(const Node* node) {
  if (node == nullptr) {
    return "";
  }
  std::string kind =
      node->cluster + " " + std::to_string(node->cores) + " " + std::to_string(node->gpus.size());
  for (const auto& [key, value] : node->labels) {
    kind.append(" ").append(key).append("=").append(value);
  }
  return kind;
}

std::string group_name(const Process& process) {
  return process.model + " " + net::to_string(process.role);
}

bool serves(const Process& process) {
  return process.state == ProcessState::kReady && process.fate == Fate::kRestart &&
         !process.suspected;
}

PairMember member_of(const Job& job, const Process& worker) {
  PairMember member{.name = worker.name,
                    .engine_id = worker.engine_id,
                    .incarnation = worker.incarnation,
                    .group = group_name(worker),
                    .group_whole = true};
  for (const Process& other : job.processes()) {
    if (other.is_worker() && other.role == worker.role && other.model == worker.model) {
      member.group_whole = member.group_whole && serves(other);
      member.has_peer = member.has_peer || (&other != &worker && !other.spare);
    }
  }
  return member;
}

// Those that routers tell of; usually there are none.
std::vector<FailingPair> failing_pairs(const Job& job) {
  std::vector<FailingPair> pairs;
  for (const Process& router : job.processes()) {
    for (const net::WorkerTrouble& trouble : router.troubles) {
      const Process* const decode = job.find(trouble.worker);
      const Process* const prefill = trouble.lasts ? job.find(trouble.partner) : nullptr;
      if (router.is_router() && router.serving() && decode != nullptr && prefill != nullptr &&
          decode != prefill && decode->is_worker() && prefill->is_worker() &&
          pairs.size() < net::kTroublesMax) {
        pairs.push_back({member_of(job, *prefill), member_of(job, *decode), trouble.why});
      }
    }
  }
  return pairs;
}

// One that goes, comes or changes its role belongs to a group that is not whole.
std::vector<PeerGroup> groups_of(const Job& job) {
  std::map<std::pair<net::Role, std::string>, PeerGroup> groups;
  for (const Process& process : job.processes()) {
    if (!process.is_worker()) {
      continue;
    }
    PeerGroup& group =
        groups
            .try_emplace({process.role, process.model},
                         PeerGroup{.name = group_name(process), .whole = true, .workers = {}})
            .first->second;
    group.whole = group.whole && serves(process);
    if (serves(process) && !process.spare && process.load_told) {
      group.workers.push_back({.name = process.name,
                               .engine_id = process.engine_id,
                               .node = process.place.node,
                               .kind = kind_of(job.node_of(process)) + " " + process.spec,
                               .steps = process.load.steps});
    }
  }
  std::vector<PeerGroup> list;
  for (auto& [key, group] : groups) {
    list.push_back(std::move(group));
  }
  return list;
}

}  // namespace

JobReplacements::JobReplacements(net::Loop& loop, JobRunner& runner, Options options)
    : loop_(loop),
      runner_(runner),
      options_(std::move(options)),
      stragglers_(options_.config, options_.record) {
  if (options_.config.on() || options_.replaces_failing) {
    tick_ = loop_.call_at(loop_.now() + kReplacementsTick, [this] { tick(); });
  }
}

JobReplacements::~JobReplacements() { loop_.cancel(tick_); }

void JobReplacements::tick() {
  const Instant now = loop_.now();
  tick_ = loop_.call_at(now + kReplacementsTick, [this] { tick(); });
  if (runner_.job().state() != JobState::kReady || runner_.job().adopting()) {
    return;
  }
  if (stragglers_.due(now)) {
    replace_slow(now);
  }
  if (options_.replaces_failing) {
    replace_failing(now);
  }
}

void JobReplacements::replace_slow(Instant now) {
  const Job& job = runner_.job();
  const auto has_room_elsewhere = [&](const std::string& worker) {
    return job.has_room_elsewhere(*job.find(worker), now);
  };
  const auto found = stragglers_.step(groups_of(job), now, has_room_elsewhere);
  if (!found.empty()) {
    options_.keep(stragglers_.record());
  }
  for (const SlowWorker& slow : found) {
    options_.say(slow.name + " " + slow.reason +
                 (slow.replace ? ": it is drained, and a new process takes its place\n"
                               : ". No other node has room, so it stays\n"));
    runner_.submit(slow.replace ? Event(ReplaceAsked{slow.name}) : Event(NodeBlamed{slow.node}));
  }
}

void JobReplacements::replace_failing(Instant now) {
  const auto found = failing_.step(failing_pairs(runner_.job()), stragglers_.pace(), now);
  if (!found.empty()) {
    options_.keep(stragglers_.record());
  }
  for (const FailingWorker& failing : found) {
    options_.say(failing.name + " " + failing.reason +
                 ": it is drained, and a new process takes its place\n");
    runner_.submit(ReplaceAsked{.name = failing.name, .slow = false});
  }
}

}  // namespace pdjob::launcher
