#include "launcher/job/job.h"

#include <algorithm>
#include <deque>
#include <map>
#include <utility>

#include "common/check.h"
#include "common/exit_code.h"
#include "launcher/placement/gang.h"

namespace pdjob::launcher {

namespace {

bool is_ready(const Process& process) { return process.state == ProcessState::kReady; }
bool has_hope(const Process& process) { return !process.hopeless(); }

// Each launcher has numbers of its own. So none is used twice, even if the last ones of an earlier
// launcher did not reach its ledger.
uint64_t numbers_before(const JobSetting& setting) {
  constexpr int kBitsOfNumber = 20;
  return setting.record
             ? std::max(setting.record->incarnations_made, setting.launcher << kBitsOfNumber)
             : 0;
}

std::string in_seconds(Duration duration) {
  const auto whole = std::chrono::duration_cast<std::chrono::seconds>(duration).count();
  return std::to_string(whole) + " s";
}

// What the plan has more than the warm processes: of workers so many of a role and model, whatever
// their names. Their places in the plan may be taken.
std::vector<ProcessPlan> beside_warm(std::vector<ProcessPlan> plan,
                                     const std::vector<ProcessRecord>& warm) {
  std::map<std::pair<net::Role, std::string>, size_t> left;
  for (const ProcessRecord& process : warm) {
    ++left[{process.role, process.model}];
  }
  std::erase_if(plan, [&](ProcessPlan& planned) {
    const bool is_worker = net::is_worker(planned.role);
    if (is_worker) {
      planned.place = {};
      if (size_t& others = left[{planned.role, planned.model}]; others > 0) {
        --others;
        return true;
      }
    }
    return std::ranges::find(warm, planned.name, &ProcessRecord::name) != warm.end();
  });
  return plan;
}

}  // namespace

const char* to_string(JobState state) {
  switch (state) {
    case JobState::kStarting:
      return "starting";
    case JobState::kReady:
      return "ready";
    case JobState::kDraining:
      return "draining";
    case JobState::kDone:
      return "done";
  }
  PDJOB_CHECK(false, static_cast<int>(state));
}

Job::Job(std::vector<ProcessPlan> plan, const JobTiming& timing, std::string nonce,
         const JobSetting& setting)
    : timing_(timing),
      places_(setting.record || !setting.nodes.empty()),
      groups_(setting.groups),
      weights_(setting.record ? setting.record->weights : setting.weights),
      store_(setting.store),
      placement_(setting.record ? setting.record->nodes : setting.nodes),
      supervision_(timing, std::move(nonce), numbers_before(setting)),
      membership_(timing.membership_retry, (setting.launcher << 32U) + 1),
      probing_(timing.probe_retry, timing.start_timeout, setting.foreign_router,
               [this](const std::string& router, const std::string& process) {
                 return membership_.knows(router, process);
               }) {
  if (setting.record) {
    take(*setting.record);
    plan = setting.record->warm ? beside_warm(std::move(plan), setting.record->processes)
                                : std::vector<ProcessPlan>();
  }
  for (ProcessPlan& planned : plan) {
    add(std::move(planned));
  }
}

void Job::step(const Event& event, Instant now, std::vector<Effect>& effects) {
  Turn turn{now, effects};
  forgive_own_sleep(now);
  std::visit([&](const auto& body) { on(body, turn); }, event);
  if (!is_heartbeat(event)) {
    converge(turn);
  }
  choose_spares();
  note_shared_cores();
  membership_.publish(turn);
  if (runs()) {
    while (auto probe = probing_.next(now)) {
      turn.emit(std::move(*probe));
    }
    check_ready(turn);
  }
  wakeup_promised_ = next_wakeup();
}

Instant Job::next_wakeup() const {
  switch (state_) {
    case JobState::kDone:
      return kNever;
    case JobState::kDraining:
      return std::min(stop_deadline_, adopt_deadline_);
    case JobState::kStarting:
    case JobState::kReady:
      return std::min(
          {start_deadline_, adopt_deadline_, converge_due_, wakeups_.next(), probing_.due()});
  }
  PDJOB_CHECK(false, static_cast<int>(state_));
}

std::string Job::waiting_for() const {
  std::string text;
  const Demand* told = nullptr;  // One of a group is enough.
  for (const Process& process : processes_) {
    if (process.state != ProcessState::kReady && !process.is_store()) {
      text += (text.empty() ? "" : ", ") + process.name + " is " + to_string(process.state) +
              (process.starvation.starved() ? " and starved of CPU" : "");
      if (started_ && process.state == ProcessState::kWaiting &&
          (told == nullptr || *told != process.demand)) {
        text += " for a node: " + placement_.nearest(process.demand);
        told = &process.demand;
      }
    }
  }
  if (!text.empty() && !probing_.last_error().empty()) {
    text += "; last probe: " + probing_.last_error();
  }
  return text;
}

// --- who is there

Process& Job::add(ProcessPlan plan) {
  Process& process = processes_.emplace_back();
  static_cast<ProcessPlan&>(process) = std::move(plan);
  process.order = ++added_;
  process.restart_policy = RestartPolicy(timing_.restart);
  by_name_.emplace(process.name, std::prev(processes_.end()));
  if (placement_.has(process.place.node)) {
    placement_.take(process.place, process.demand);
  } else if (places_) {
    process.place = {};
  }
  if (!process.is_store()) {
    not_ready_.insert(&process);
  }
  return process;
}

void Job::remove(Process& process, Turn& turn) {
  membership_.update(process);
  membership_.publish(turn);
  membership_.forget(process);
  probing_.remove(process);
  wakeups_.remove(process);
  std::erase(leaving_, &process);
  give_back_place(process);
  not_ready_.erase(&process);
  const Position row = by_name_.at(process.name);
  by_name_.erase(process.name);  // Its key is the name inside the process.
  processes_.erase(row);
}

void Job::give_back_place(Process& process) {
  placement_.release(process.place, process.demand);
  process.place = {};
  room_made_ = true;
}

void Job::note_shared_cores() {
  if (std::exchange(places_noted_, placement_.changes()) == placement_.changes()) {
    return;
  }
  for (Process& process : processes_) {
    const bool shares = placement_.shares_cores(process.place, process.demand);
    if (std::exchange(process.shares_cores, shares) != shares) {
      settle(process);
    }
  }
}

void Job::settle(Process& process) {
  spares_due_ = true;
  membership_.update(process);
  probing_.update(process);
  wakeups_.set(process, supervision_.due(process));
  const bool needless = is_ready(process) || process.is_store();
  needless ? void(not_ready_.erase(&process)) : void(not_ready_.insert(&process));
}

// Each worker leaves and comes back as another engine: KV of the old weights has no peer then.
void Job::on(const WeightsChosen& event, Turn& turn) {
  if (!runs()) {
    return;
  }
  weights_ = event.weights;
  for (auto row = processes_.begin(); row != processes_.end();) {
    Process& process = *row++;  // It may be removed.
    if (!process.is_worker() || process.fate == Fate::kEnd || process.drain_sent) {
      continue;
    }
    const auto prepared = event.prepared.find(process.engine_id);
    process.next_role = process.fate == Fate::kChangeRole ? process.next_role : process.role;
    process.keeps_model = process.serving() && prepared != event.prepared.end();
    process.weights_order = process.keeps_model ? prepared->second : 0;
    process.next_version = weights_.version;
    begin_leaving(process, Fate::kChangeRole, turn);
  }
  membership_.publish(turn);
  drain_those_known_to_leave(turn);
}

bool Job::has_other_weights(const Process& process, const net::WorkerEntry& entry) const {
  return !weights_.version.empty() && process.is_worker() &&
         (entry.weight_version != weights_.version ||
          (!weights_.digest.empty() && entry.model_digest != weights_.digest));
}

bool Job::has_other_role(const Process& process, const std::string& engine_id) {
  return process.state == ProcessState::kDraining && !process.killed &&
         !process.next_engine_id.empty() && engine_id == process.next_engine_id;
}

void Job::dismiss(Process& process, Fate fate, Turn& turn) {
  begin_leaving(process, fate, turn);
  membership_.publish(turn);
  drain_those_known_to_leave(turn);
}

// Routers must be told next.
void Job::begin_leaving(Process& process, Fate fate, Turn& turn) {
  const bool served = process.serving();
  supervision_.dismiss(process, fate, turn);
  if (!process.alive()) {
    ended(process, turn);
    return;
  }
  if (served) {
    leaving_.push_back(&process);
  }
  settle(process);
}

void Job::drain_those_known_to_leave(Turn& turn) {
  std::erase_if(leaving_, [](const Process* process) {
    return process->drain_sent || process->state != ProcessState::kDraining;
  });
  for (Process* process : leaving_) {
    if (membership_.all_know(process->name)) {
      supervision_.drain(*process, turn);
      settle(*process);
    }
  }
}

// --- starting, dying, restarting

void Job::on(const Started&, Turn& turn) {
  PDJOB_CHECK(!started_);
  started_ = true;
  if (!absent_.empty()) {
    begin_adoption(turn);
    return;
  }
  start_deadline_ = turn.now + timing_.start_timeout;
  for (Process& process : processes_) {
    start(process, turn);
  }
}

// While it adopts, only a node that has joined is one. A store is of one node.
bool Job::find_place(Process& process, Instant now) {
  if (places_ && process.place.node.empty() && !adopting() && !process.is_store()) {
    const TrustLevels levels = trust_.levels(now);
    process.place =
        placement_.take(process.demand, {.levels = &levels}).value_or(ChosenPlace{}).place;
  }
  const auto absent = [this](const PlacePart& part) { return absent_.contains(part.node); };
  return !places_ ||
         (!process.place.node.empty() && std::ranges::none_of(process.place.parts(), absent));
}

// A router's door and the files of the Batch API are on its node.
bool Job::should_move(const Process& process, Instant now) const {
  const uint32_t level = trust_.level(process.place.node, now);
  return level > 0 && process.is_worker() && !adopting() &&
         placement_.has_room_elsewhere(process.demand, process.place.node, level - 1,
                                       trust_.levels(now));
}

// Without a place it waits for a node.
void Job::start(Process& process, Turn& turn) {
  if (should_move(process, turn.now)) {
    give_back_place(process);
  }
  follow_changed_group(process);
  if (find_place(process, turn.now)) {
    supervision_.start(process, process.is_worker() ? weights_ : net::WeightSource{}, turn);
    by_incarnation_.emplace(process.incarnation.value, &process);
  } else if (process.state != ProcessState::kWaiting) {
    process.state = ProcessState::kWaiting;
    process.since = turn.now;
    process.deadline = kNever;
  }
  settle(process);
}

// Groups take turns, so that room for two goes to a prefill and a decode worker.
void Job::start_waiting(Turn& turn) {
  using Key = std::pair<net::Role, std::string>;
  std::map<Key, size_t> numbers;
  std::vector<GroupCount> counts;
  std::vector<std::deque<Process*>> waiting;
  for (Process& process : processes_) {
    const size_t number =
        numbers.try_emplace({process.role, process.model}, counts.size()).first->second;
    counts.resize(numbers.size());
    waiting.resize(numbers.size());
    ++counts[number].wanted;
    if (process.state == ProcessState::kWaiting) {
      follow_changed_group(process);
      waiting[number].push_back(&process);
    } else {
      ++counts[number].placed;
    }
  }
  for (size_t g = next_group(counts); g < counts.size(); g = next_group(counts)) {
    std::deque<Process*>& queue = waiting[g];
    Process& process = *queue.front();
    const bool placed = find_place(process, turn.now);
    if (placed) {
      ++counts[g].placed;
      start(process, turn);
      queue.pop_front();
    }
    while (!placed && !queue.empty() && queue.front()->demand == process.demand) {
      queue.pop_front();  // There is no room for it either.
    }
    counts[g].stuck = queue.empty();
  }
}

void Job::died(Process& process, const std::string& how, net::LossCause cause, Turn& turn) {
  by_incarnation_.erase(process.incarnation.value);
  supervision_.died(process, how, cause, turn);
  ended(process, turn);
}

// It has died, or was never started.
void Job::ended(Process& process, Turn& turn) {
  if (state_ == JobState::kDraining && process.fate != Fate::kEnd) {
    supervision_.dismiss(process, Fate::kEnd, turn);  // It was to stay warm.
  }
  settle(process);
  if (state_ == JobState::kDraining) {
    drain_next(turn);
    return;
  }
  if (process.state == ProcessState::kExited) {
    remove(process, turn);
  } else if (process.fate == Fate::kChangeRole) {
    const bool same_role = process.role == process.next_role;
    process.role = process.next_role;
    process.fate = Fate::kRestart;
    process.last_exit.clear();  // It was asked to end.
    follow_group(process);
    process.restart_policy = RestartPolicy(timing_.restart);
    if (same_role && is_surplus(process, turn.now)) {
      dismiss(process, Fate::kEnd, turn);
      return;
    }
    start(process, turn);
  } else if (state_ == JobState::kStarting && process.hopeless() && !process.is_store() &&
             !any_peer(process, has_hope)) {
    fail(process.name + " died " + std::to_string(process.restart_policy.deaths_in_a_row()) +
             " times before it was ready, last: " + process.last_exit,
         process.name, turn);
    return;
  }
  drain_those_known_to_leave(turn);  // A router that is gone needs not know.
}

void Job::on(const TimePassed&, Turn& turn) {
  if (turn.now >= adopt_deadline_) {
    give_up_absent(turn);
  }
  while (runs() && wakeups_.next() <= turn.now) {
    check(wakeups_.take(), turn);
  }
  if (state_ == JobState::kStarting && turn.now >= start_deadline_) {
    start_time_is_over(turn);
  } else if (state_ == JobState::kDraining && turn.now >= stop_deadline_) {
    stop_deadline_ = kNever;
    kill_all(turn);
  }
}

void Job::start_time_is_over(Turn& turn) {
  const Process* stuck = nullptr;
  for (const Process& process : processes_) {
    if (!is_ready(process) && !process.is_store() && !any_peer(process, is_ready)) {
      stuck = stuck == nullptr ? &process : stuck;
      start_deadline_ = std::max(start_deadline_, supervision_.start_due(process, turn.now));
    }
  }
  if (stuck == nullptr) {
    become_ready(turn);
  } else if (turn.now >= start_deadline_) {
    fail("not ready after " + in_seconds(timing_.start_timeout) + ": " + waiting_for(), stuck->name,
         turn);
  }
}

void Job::check(Process& process, Turn& turn) {
  if (process.state == ProcessState::kBackoff && turn.now >= process.deadline) {
    start(process, turn);
    return;
  }
  supervision_.time_passed(process, turn);
  settle(process);
}

// Missing heartbeats mean nothing if we were stopped ourselves (a stopped launcher, a paused
// machine). All processes then count as heard now.
void Job::forgive_own_sleep(Instant now) {
  if (wakeup_promised_ != kNever && now > wakeup_promised_ + Heartbeats::kSilenceMin / 2) {
    for (Process& process : processes_) {
      process.heartbeats.forgive(now);
    }
  }
}

// --- being ready

void Job::on(const ProbeSucceeded& event, Turn& turn) {
  for (const std::string& name : probing_.succeeded(event, turn.now)) {
    Process& process = *find_mutable(name);
    supervision_.proved(process, turn);
    settle(process);
  }
}

void Job::on(const ProbeFailed& event, Turn& turn) {
  for (const std::string& name : probing_.failed(event, turn.now)) {
    Process& process = *find_mutable(name);
    if (process.starvation.starved()) {
      continue;  // Slow, not sick: further probes follow.
    }
    const bool serves = process.state == ProcessState::kReady;
    supervision_.kill(
        process,
        std::string(serves ? "new engines go on failing with it (" : "no probe went through it (") +
            event.reason + ")",
        turn);
    settle(process);
  }
}

// Looks at the other processes of its role and model that stay.
bool Job::any_peer(const Process& process, bool (*fits)(const Process&)) const {
  return std::ranges::any_of(processes_, [&](const Process& other) {
    return &other != &process && other.role == process.role && other.model == process.model &&
           other.fate == Fate::kRestart && fits(other);
  });
}

void Job::check_ready(Turn& turn) {
  const auto maybe = [](const Process* process) {
    return process->hopeless() || process->state == ProcessState::kWaiting;
  };
  const auto needless = [this](const Process* process) {
    return (process->hopeless() && any_peer(*process, is_ready)) || may_wait(*process);
  };
  if (state_ == JobState::kStarting && !adopting() && membership_.confirmed() &&
      std::ranges::all_of(not_ready_, maybe) && std::ranges::all_of(not_ready_, needless)) {
    become_ready(turn);
  }
}

void Job::become_ready(Turn& turn) {
  state_ = JobState::kReady;
  start_deadline_ = kNever;
  converge_due_ = turn.now;
  turn.emit(ReportReady{});
}

// --- looking up

const Process* Job::find(std::string_view name) const {
  const auto found = by_name_.find(name);
  return found == by_name_.end() ? nullptr : &*found->second;
}

Process* Job::find_mutable(std::string_view name) {
  const auto found = by_name_.find(name);
  return found == by_name_.end() ? nullptr : &*found->second;
}

}  // namespace pdjob::launcher
