#include "launcher/job_stragglers.h"

#include <chrono>
#include <map>
#include <utility>
#include <vector>

namespace pdjob::launcher {

namespace {

constexpr Duration kStragglersTick = std::chrono::milliseconds(500);

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
                         PeerGroup{.name = process.model + " " + net::to_string(process.role),
                                   .whole = true,
                                   .workers = {}})
            .first->second;
    const bool serves = process.state == ProcessState::kReady && process.fate == Fate::kRestart &&
                        !process.suspected;
    group.whole = group.whole && serves;
    if (serves && !process.spare && process.load_told) {
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

JobStragglers::JobStragglers(net::Loop& loop, JobRunner& runner, Options options)
    : loop_(loop),
      runner_(runner),
      options_(std::move(options)),
      stragglers_(options_.config, options_.record) {
  if (options_.config.on()) {
    tick_ = loop_.call_at(loop_.now() + kStragglersTick, [this] { tick(); });
  }
}

JobStragglers::~JobStragglers() { loop_.cancel(tick_); }

void JobStragglers::tick() {
  const Instant now = loop_.now();
  tick_ = loop_.call_at(now + kStragglersTick, [this] { tick(); });
  const Job& job = runner_.job();
  if (job.state() != JobState::kReady || job.adopting() || !stragglers_.due(now)) {
    return;
  }
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

}  // namespace pdjob::launcher
