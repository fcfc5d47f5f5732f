#include "launcher/pool/keeper.h"

#include <algorithm>
#include <set>
#include <string_view>
#include <utility>

#include "common/exit_code.h"
#include "launcher/pool/room.h"

namespace pdjob::launcher {

namespace {

constexpr Duration kGather = std::chrono::milliseconds(50);  // Changes, before jobs are offered.
constexpr Duration kNodeReturns = std::chrono::seconds(10);  // Then its shares move.
constexpr Duration kLauncherEnds = std::chrono::minutes(2);  // Then it is killed.
constexpr Duration kShareEnds = std::chrono::seconds(10);    // The same.
// A process that ends before it has run so long has failed.
constexpr Duration kStableIfKilled = std::chrono::minutes(1);
constexpr Duration kStable = std::chrono::hours(1);
constexpr Duration kPauseMost = std::chrono::seconds(30);  // Before a start.
constexpr uint32_t kFailuresMax = 5;                       // In a row, of a launcher.
constexpr std::string_view kExitCode = "exit code ";

Duration pause_after(uint32_t failures) {
  const Duration pause = std::chrono::seconds(1) * (1U << std::min(failures, 6U)) / 2;
  return std::min<Duration>(pause, kPauseMost);
}

// An end before it has run so long is a failure.
Duration stable_after(const std::string& how) {
  return how.starts_with(kExitCode) ? kStable : kStableIfKilled;
}

// An empty `how`: through no fault of its own.
void note_end(PoolProcess& process, const std::string& how, Instant now) {
  const bool asked = std::exchange(process.ending, false) || how.empty();
  const bool early = now - process.begun < stable_after(how);
  process.incarnation = {};
  process.failures = asked ? process.failures : early ? process.failures + 1 : 1;
  process.due = asked ? now : now + pause_after(process.failures);
}

template <class Job, class Each>
void each_process(Job& job, const Each& each) {
  each(job.launcher);
  for (auto& held : job.shares) {
    each(held.agent);
  }
}

// Jobs of one name may be there: one that ends or is warm, and the next one.
auto last_called(auto& jobs, const std::string& name) {
  return std::find_if(jobs.rbegin(), jobs.rend(), [&](const PoolJob& job) {
    return job.order.name == name && job.state != PoolJobState::kEnded;
  });
}

}  // namespace

Keeper::Keeper(KeeperSetting setting, SharePlacer placer, PoolLedger ledger, Instant now)
    : setting_(setting), placer_(std::move(placer)), ledger_(std::move(ledger)), offer_due_(now) {
  for (PoolJob& job : ledger_.jobs) {
    each_process(job, [&](PoolProcess& process) {
      if (!process.node.empty()) {
        lost_.emplace(process.node, now);
        process.due = process.ending ? now + kLauncherEnds : now;
      }
    });
    job.warm_until = job.state == PoolJobState::kWarm ? now + job.order.keep : kNever;
  }
  due_ = now;
}

void Keeper::step(const KeeperEvent& event, Instant now, std::vector<KeeperEffect>& effects) {
  Turn turn{now, effects};
  std::visit([&](const auto& body) { on(body, turn); }, event);
  work(turn);
}

Instant Keeper::next_wakeup() const { return due_; }

const PoolJob* Keeper::job_called(const std::string& name) const {
  const auto at = last_called(ledger_.jobs, name);
  return at == ledger_.jobs.rend() ? nullptr : &*at;
}

const PoolJob* Keeper::job(uint64_t id) const {
  const auto at = std::ranges::find(ledger_.jobs, id, &PoolJob::id);
  return at == ledger_.jobs.end() ? nullptr : &*at;
}

std::vector<Node> Keeper::nodes() const {
  std::vector<Node> nodes;
  for (const auto& [name, state] : nodes_) {
    nodes.push_back(state.node);
  }
  return nodes;
}

const Node* Keeper::node(const std::string& name) const {
  const auto at = nodes_.find(name);
  return at == nodes_.end() ? nullptr : &at->second.node;
}

std::vector<Node> Keeper::free_nodes(const std::set<uint64_t>& without) const {
  std::vector<Node> free;
  for (const auto& [name, state] : nodes_) {
    if (state.strays.empty()) {
      free.push_back(state.node);
    }
  }
  for (const PoolJob& job : ledger_.jobs) {
    for (const HeldShare& held : job.shares) {
      if (!without.contains(job.id)) {
        take_from(free, held.share);
      }
    }
  }
  return free;
}

std::string Keeper::objection(const PoolJobOrder& order) const {
  const PoolJob* const last = job_called(order.name);
  const bool goes =
      last != nullptr && (last->state == PoolJobState::kWarm ||
                          (last->state == PoolJobState::kEnding && !last->comes_back));
  if (last != nullptr && !goes) {
    return "a job of the name " + order.name + " is " + to_string(last->state) +
           ": `pdjob cancel " + order.name + "` ends it";
  }
  const auto alive = std::ranges::count_if(
      ledger_.jobs, [](const PoolJob& job) { return job.state != PoolJobState::kEnded; });
  return static_cast<size_t>(alive) < kPoolJobsMax
             ? ""
             : "the pool has " + std::to_string(kPoolJobsMax) + " jobs, which is the most";
}

// --- nodes

Instant Keeper::lost_since(const std::string& node) const {
  const auto lost = lost_.find(node);
  return lost == lost_.end() ? kNever : lost->second;
}

Instant Keeper::surely_over(const std::string& node) const {
  const Instant since = lost_since(node);
  return since == kNever ? Instant{} : since + setting_.orphan_timeout + 2 * setting_.lease;
}

void Keeper::on(const NodeJoined& event, Turn& turn) {
  const std::string& name = event.node.name;
  NodeState& state = nodes_[name];
  state.node = event.node;
  state.strays.clear();
  lost_.erase(name);
  std::set<Incarnation> running;
  for (const RunningProcess& process : event.running) {
    running.insert(process.incarnation);
  }
  std::set<Incarnation> known;
  for (const PoolJob& job : ledger_.jobs) {
    each_process(job, [&](const PoolProcess& process) {
      if (process.node == name && runs(process)) {
        known.insert(process.incarnation);
      }
    });
  }
  for (const Incarnation incarnation : known) {
    if (!running.contains(incarnation)) {
      process_ended(name, incarnation, "", turn);
    }
  }
  for (const Incarnation incarnation : running) {
    if (!known.contains(incarnation)) {
      state.strays.insert(incarnation);
      turn.emit(EndProcess{name, incarnation, Signal::kKill});
    }
  }
  offer_soon(turn.now);
}

void Keeper::on(const NodeLost& event, Turn& turn) {
  if (nodes_.erase(event.name) > 0) {
    lost_[event.name] = turn.now;
  }
}

// --- processes

void Keeper::on(const Spawned& /*event*/, Turn& /*turn*/) {}

void Keeper::on(const SpawnFailed& event, Turn& turn) {
  process_ended(event.node, event.incarnation, event.reason.empty() ? "?" : event.reason, turn);
}

void Keeper::on(const ProcessExited& event, Turn& turn) {
  process_ended(event.node, event.incarnation, event.how.empty() ? "?" : event.how, turn);
}

// An empty `how`: its node came back without it.
void Keeper::process_ended(const std::string& node, Incarnation incarnation, const std::string& how,
                           Turn& turn) {
  const auto at = nodes_.find(node);
  if (at != nodes_.end() && at->second.strays.erase(incarnation) > 0) {
    offer_soon(turn.now);
    return;
  }
  const auto is_it = [&](const PoolProcess& process) {
    return process.incarnation == incarnation && process.node == node;
  };
  for (PoolJob& job : ledger_.jobs) {
    if (is_it(job.launcher)) {
      launcher_ended(job, how, turn);
      return;
    }
    const auto held =
        std::ranges::find_if(job.shares, [&](const HeldShare& each) { return is_it(each.agent); });
    if (held != job.shares.end()) {
      note_end(held->agent, how, turn.now);
      return;
    }
  }
}

// A batch ends when it is done. A job that serves goes on until it is cancelled, also if somebody
// stops its launcher, as a machine does that shuts down.
void Keeper::launcher_ended(PoolJob& job, const std::string& how, Turn& turn) {
  note_end(job.launcher, how, turn.now);
  if (job.state != PoolJobState::kRunning || how.empty()) {
    return;
  }
  const auto ended_with = [&](int code) {
    return how == std::string(kExitCode) + std::to_string(code);
  };
  if (job.order.batch && ended_with(kExitOk)) {
    batch_done(job, kBatchDone, turn);
  } else if (job.order.batch && ended_with(kExitRowsFailed)) {
    batch_done(job, "done, and some rows have no answer", turn);
  } else if (ended_with(kExitUsage)) {
    begin_ending(job, false, "failed: its launcher ended with " + how, turn);
  } else if (job.launcher.failures >= kFailuresMax) {
    begin_ending(job, false,
                 "failed: its launcher ended " + std::to_string(kFailuresMax) +
                     " times in a row, the last time with " + how,
                 turn);
  } else {
    turn.emit(
        SayOfPool{"job " + job.order.name + ": its launcher ended (" + how + ") and starts again"});
  }
}

void Keeper::batch_done(PoolJob& job, const std::string& why, Turn& turn) {
  if (job.order.keep == Duration::zero()) {
    return begin_ending(job, false, why, turn);
  }
  job.state = PoolJobState::kWarm;
  job.why = why;
  job.warm_until = turn.now + job.order.keep;
  turn.emit(SayOfPool{"job " + job.order.name + " is " + why + ", and its workers stay warm"});
  offer_soon(turn.now);
}

void Keeper::tell_to_end(PoolProcess& process, Duration patience, Turn& turn) {
  if (runs(process) && !process.ending) {
    process.ending = true;
    process.due = turn.now + patience;
    turn.emit(EndProcess{process.node, process.incarnation, Signal::kTerminate});
  }
}

void Keeper::kill_if_due(PoolProcess& process, Turn& turn) {
  if (process.ending && process.due <= turn.now) {
    process.due = kNever;
    turn.emit(EndProcess{process.node, process.incarnation, Signal::kKill});
  }
}

// --- orders

void Keeper::on(const JobSubmitted& event, Turn& turn) {
  if (!objection(event.order).empty()) {
    return;
  }
  ledger_.jobs.push_back({.id = ++ledger_.ids, .order = event.order});
  offer_soon(turn.now);
}

void Keeper::on(const JobCancelled& event, Turn& turn) {
  const auto at = last_called(ledger_.jobs, event.name);
  if (at == ledger_.jobs.rend()) {
    return;
  }
  if (at->state == PoolJobState::kEnding) {
    at->why = at->comes_back ? "cancelled" : at->why;
    at->comes_back = false;
  } else {
    begin_ending(*at, false, at->state == PoolJobState::kWarm ? at->why : "cancelled", turn);
  }
}

void Keeper::on(const QuotaSet& event, Turn& turn) {
  std::erase_if(ledger_.quotas,
                [&](const QueueQuota& quota) { return quota.queue == event.quota.queue; });
  const bool limits = event.quota.cores > 0 || event.quota.gpus > 0;
  if (limits && ledger_.quotas.size() < kPoolQueuesMax) {
    ledger_.quotas.push_back(event.quota);
  }
  offer_soon(turn.now);
}

void Keeper::on(const TimePassed& /*event*/, Turn& /*turn*/) {}

// --- the life of a job

void Keeper::offer_soon(Instant now) { offer_due_ = std::min(offer_due_, now + kGather); }

void Keeper::work(Turn& turn) {
  for (PoolJob& job : ledger_.jobs) {
    if (job.state == PoolJobState::kRunning) {
      run(job, turn);
    } else if (job.state == PoolJobState::kEnding) {
      end_further(job, turn);
    } else if (job.state == PoolJobState::kWarm) {
      stay_warm(job, turn);
    }
  }
  if (turn.now >= offer_due_) {
    offer_due_ = kNever;
    schedule(turn);
  }
  forget_old_jobs();
  due_ = earliest(turn.now);
}

Instant Keeper::earliest(Instant now) const {
  Instant due = offer_due_;
  const auto take = [&](Instant when) { due = when > now ? std::min(due, when) : due; };
  for (const PoolJob& job : ledger_.jobs) {
    each_process(job, [&](const PoolProcess& process) { take(process.due); });
    take(job.warm_until);
  }
  for (const auto& [node, since] : lost_) {
    take(since + kNodeReturns);
    take(surely_over(node));
  }
  return due;
}

bool Keeper::stays_away(const PoolProcess& process, Instant now) const {
  return !is_here(process.node) && now >= lost_since(process.node) + kNodeReturns;
}

void Keeper::run(PoolJob& job, Turn& turn) {
  const auto is_due = [&](const PoolProcess& process) {
    return !runs(process) && is_here(process.node) && process.due <= turn.now;
  };
  const auto begin = [&](PoolProcess& process) {
    process.incarnation = next_incarnation();
    process.ending = false;
    process.begun = turn.now;
    process.due = kNever;
  };
  PoolProcess& launcher = job.launcher;
  if (is_due(launcher)) {
    begin(launcher);
    turn.emit(StartLauncher{job.id});
  } else if (stays_away(launcher, turn.now) &&
             (!runs(launcher) || turn.now >= surely_over(launcher.node))) {
    move_launcher(job, turn);
  }
  for (HeldShare& held : job.shares) {
    if (stays_away(held.agent, turn.now)) {
      move_share(job, held, turn);
    }
    if (is_due(held.agent)) {
      begin(held.agent);
      turn.emit(StartShare{job.id, held.number});
    }
    kill_if_due(held.agent, turn);
  }
}

// Its workers are of use only together.
void Keeper::stay_warm(PoolJob& job, Turn& turn) {
  const bool is_whole = !stays_away(job.launcher, turn.now) &&
                        std::ranges::all_of(job.shares, [&](const HeldShare& held) {
                          return runs(held.agent) && !stays_away(held.agent, turn.now);
                        });
  if (!is_whole || turn.now >= job.warm_until) {
    begin_ending(job, false, job.why, turn);
  }
}

// If the node comes back, its agent ends what it still runs before it gets anything.
void Keeper::move_share(PoolJob& job, HeldShare& held, Turn& turn) {
  const auto place = place_of(free_nodes(), held.share);
  if (!place) {
    job.why = "node " + held.share.node + " is lost, and no other one has room for its share";
    return;
  }
  turn.emit(SayOfPool{"job " + job.order.name + ": its share of node " + held.share.node +
                      ", which is lost, moves to " + place->node});
  job.why.clear();
  held = {.number = ++job.shares_made,
          .share = *place,
          .agent = {.node = place->node, .due = turn.now}};
}

void Keeper::move_launcher(PoolJob& job, Turn& turn) {
  std::vector<std::string> first;
  for (const HeldShare& held : job.shares) {
    first.push_back(held.share.node);
  }
  const std::string node = node_for_launcher(job, first);
  if (node.empty()) {
    job.why = "node " + job.launcher.node + " with its launcher is lost, and no other can have it";
    return;
  }
  turn.emit(SayOfPool{"job " + job.order.name + ": its launcher moves from node " +
                      job.launcher.node + ", which is lost, to " + node});
  job.why.clear();
  job.launcher = {.node = node, .due = turn.now};
  for (HeldShare& held : job.shares) {  // They join elsewhere from now on.
    tell_to_end(held.agent, kShareEnds, turn);
  }
}

void Keeper::begin_ending(PoolJob& job, bool comes_back, const std::string& why, Turn& turn) {
  job.state = PoolJobState::kEnding;
  job.warm_until = kNever;
  job.comes_back = comes_back;
  job.why = why;
  tell_to_end(job.launcher, kLauncherEnds, turn);
  end_further(job, turn);
}

// First the launcher, which lets requests finish, then the shares.
void Keeper::end_further(PoolJob& job, Turn& turn) {
  PoolProcess& launcher = job.launcher;
  if (runs(launcher) && !is_here(launcher.node) && turn.now >= surely_over(launcher.node)) {
    launcher = {};
  }
  if (runs(launcher)) {
    tell_to_end(launcher, kLauncherEnds, turn);
    kill_if_due(launcher, turn);
    return;
  }
  std::erase_if(job.shares, [&](const HeldShare& held) {
    return !runs(held.agent) || !is_here(held.agent.node);
  });
  for (HeldShare& held : job.shares) {
    tell_to_end(held.agent, kShareEnds, turn);
    kill_if_due(held.agent, turn);
  }
  if (job.shares.empty()) {
    job.state = job.comes_back ? PoolJobState::kQueued : PoolJobState::kEnded;
    job.comes_back = false;
    job.launcher = {};
    job.port = 0;
    if (job.state == PoolJobState::kEnded) {
      job.order.text.clear();
      turn.emit(SayOfPool{"job " + job.order.name + " has ended: " + job.why});
    }
  }
  offer_soon(turn.now);
}

void Keeper::forget_old_jobs() {
  const auto has_ended = [](const PoolJob& job) { return job.state == PoolJobState::kEnded; };
  auto ended = static_cast<size_t>(std::ranges::count_if(ledger_.jobs, has_ended));
  for (; ended > kPoolJobsKept; --ended) {
    ledger_.jobs.erase(std::ranges::find_if(ledger_.jobs, has_ended));
  }
}

}  // namespace pdjob::launcher
