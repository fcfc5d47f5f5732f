#include "launcher/scaling/stragglers.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <functional>
#include <utility>

#include "common/limits.h"

namespace pdjob::launcher {

namespace {

constexpr uint32_t kSlices = 4;  // Of config.after.
// In a row make a worker slow. It was not slow in the whole of the first and the last one.
constexpr uint32_t kSlowSlices = kSlices + 1;
// What a slice must hold to say something of a worker.
constexpr uint64_t kStepsMin = 8;
constexpr double kBusyMin = 0.02;
constexpr int kFirstWait = 2;  // Times config.after: between two replacements of a group.
constexpr Duration kNodeMemory = std::chrono::hours(1);

net::StepTotals growth(const net::StepTotals& from, const net::StepTotals& to) {
  return {.us = to.us - from.us,
          .steps = to.steps - from.steps,
          .tokens = to.tokens - from.tokens,
          .rows_read = to.rows_read - from.rows_read,
          .outputs = to.outputs - from.outputs};
}

std::string times_text(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.1f times", value);
  return text;
}

std::string seconds_text(Duration duration) {
  return std::to_string(std::chrono::duration_cast<std::chrono::seconds>(duration).count()) + " s";
}

}  // namespace

// The work of `one` costs at most `most` times that of `other`, whatever each measure costs: a sum
// of fractions with a common weight lies between the least and the greatest of them.
double slowness_between(const net::StepTotals& one, const net::StepTotals& other) {
  double most = 0;
  for (const auto measure : {&net::StepTotals::steps, &net::StepTotals::tokens,
                             &net::StepTotals::rows_read, &net::StepTotals::outputs}) {
    if (one.*measure > 0 && other.*measure == 0) {
      return 0;
    }
    if (one.*measure > 0) {
      most =
          std::max(most, static_cast<double>(one.*measure) / static_cast<double>(other.*measure));
    }
  }
  return most == 0 || other.us == 0
             ? 0
             : static_cast<double>(one.us) / static_cast<double>(other.us) / most;
}

Stragglers::Stragglers(const StragglerConfig& config, const StragglerRecord& record)
    : config_(config),
      slice_(config.after / kSlices),
      pace_(kFirstWait * config.after, record.groups) {
  for (const StragglerRecord::Replaced& replaced : record.replaced) {
    replaced_[replaced.worker] = {.node = replaced.node, .at = replaced.at};
  }
}

StragglerRecord Stragglers::record() const {
  StragglerRecord record{.groups = pace_.record(), .replaced = {}};
  for (const auto& [worker, replaced] : replaced_) {
    if (record.replaced.size() < limits::kWorkersMax) {
      record.replaced.push_back({.worker = worker, .node = replaced.node, .at = replaced.at});
    }
  }
  return record;
}

double Stragglers::slowness(std::string_view name) const {
  const auto found = workers_.find(name);
  return found == workers_.end() ? 0 : found->second.slowness;
}

std::vector<SlowWorker> Stragglers::step(const std::vector<PeerGroup>& groups, Instant now,
                                         const HasRoomElsewhere& has_room_elsewhere) {
  std::vector<SlowWorker> slow;
  if (!due(now)) {
    return slow;
  }
  // After a pause of the job or of the launcher, the last slice is too long.
  const bool fits = now < due_ + slice_;
  due_ = now + slice_;
  std::map<std::string, Worker, std::less<>> known;
  for (const PeerGroup& group : groups) {
    for (const PeerSample& sample : group.workers) {
      const auto found = workers_.find(sample.name);
      const bool same =
          fits && found != workers_.end() && found->second.engine_id == sample.engine_id;
      // One that is new begins with this slice, and says nothing of the one before.
      known.emplace(
          sample.name,
          same ? found->second : Worker{.engine_id = sample.engine_id, .begin = sample.steps});
    }
  }
  workers_ = std::move(known);
  for (const PeerGroup& group : groups) {
    judge(group);
    const PeerSample* const found = slowest(group);
    if (found == nullptr || !group.whole || !pace_.allows(group.name, now)) {
      continue;
    }
    pace_.replaced(group.name, now);
    slow.push_back(decide(*found, now, has_room_elsewhere));
  }
  return slow;
}

void Stragglers::judge(const PeerGroup& group) {
  struct Share {
    const PeerSample* sample;
    net::StepTotals steps;
  };
  std::map<std::string, std::vector<Share>> by_kind;
  const double busy_min = kBusyMin * std::chrono::duration<double, std::micro>(slice_).count();
  for (const PeerSample& sample : group.workers) {
    Worker& worker = workers_.at(sample.name);
    const net::StepTotals steps = growth(std::exchange(worker.begin, sample.steps), sample.steps);
    worker.slowness = 0;
    ++worker.unknown;
    if (steps.steps >= kStepsMin && static_cast<double>(steps.us) >= busy_min) {
      by_kind[sample.kind].push_back({&sample, steps});
    }
  }
  for (const auto& [kind, peers] : by_kind) {
    const size_t most = peers.size() / 2 + 1;
    for (const Share& one : peers) {
      if (peers.size() <= most) {
        continue;  // Its peers are no majority.
      }
      std::vector<double> slowness;
      for (const Share& other : peers) {
        if (&other != &one) {
          slowness.push_back(slowness_between(one.steps, other.steps));
        }
      }
      std::ranges::sort(slowness, std::greater());
      Worker& worker = workers_.at(one.sample->name);
      worker.slowness = slowness[most - 1];
      worker.slow = worker.slowness >= config_.factor ? worker.slow + 1 : 0;
      worker.unknown = 0;
    }
  }
  for (const PeerSample& sample : group.workers) {
    Worker& worker = workers_.at(sample.name);
    worker.slow = worker.unknown > kSlices ? 0 : worker.slow;
  }
}

const PeerSample* Stragglers::slowest(const PeerGroup& group) const {
  const PeerSample* slowest = nullptr;
  for (const PeerSample& sample : group.workers) {
    const Worker& worker = workers_.at(sample.name);
    const bool worse = slowest == nullptr || worker.slowness > workers_.at(slowest->name).slowness;
    slowest = worker.slow >= kSlowSlices && worker.slowness >= config_.factor && worse ? &sample
                                                                                       : slowest;
  }
  return slowest;
}

SlowWorker Stragglers::decide(const PeerSample& worker, Instant now,
                              const HasRoomElsewhere& has_room_elsewhere) {
  Worker& row = workers_.at(worker.name);
  std::erase_if(replaced_, [now](const auto& each) { return now - each.second.at > kNodeMemory; });
  const auto before = replaced_.find(worker.name);
  const bool again = before != replaced_.end() && before->second.node == worker.node;
  SlowWorker slow{.name = worker.name,
                  .node = worker.node,
                  .slowness = row.slowness,
                  .replace = !again || has_room_elsewhere(worker.name),
                  .reason = "takes at least " + times_text(row.slowness) +
                            " as long as most of its group for the same work, for " +
                            seconds_text(config_.after)};
  if (again) {
    slow.reason += ". The worker before it on " +
                   (worker.node.empty() ? "this node" : "node " + worker.node) + " was slow, too";
  }
  if (slow.replace) {
    replaced_[worker.name] = {worker.node, now};
    row.slow = 0;
  }
  return slow;
}

}  // namespace pdjob::launcher
