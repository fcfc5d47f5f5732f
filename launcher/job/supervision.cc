#include "launcher/job/supervision.h"

#include <algorithm>
#include <utility>

#include "common/check.h"

namespace pdjob::launcher {

namespace {

// Time from asking a hung worker for its stacks until it is killed. Writing them takes
// milliseconds.
constexpr Duration kDumpGrace = std::chrono::milliseconds(500);
// Between two looks at a silent process. A process that lives sends a heartbeat more often.
constexpr Duration kLookAgain = net::kHeartbeatInterval + std::chrono::milliseconds(100);
constexpr Duration kAsleep = net::kHeartbeatInterval + std::chrono::milliseconds(50);
// Of the time between two looks: the share in which its threads wait, if cores are what it lacks.
constexpr double kWaitsForCores = 0.5;
// For the answers to looks at a process that starts.
constexpr Duration kLookGrace = std::chrono::seconds(2);
// A process that starts and waited for cores has this many times start_timeout at most. One without
// heartbeats whose other threads wait has as many times hang_timeout: its first thread may hang.
constexpr int kTimesMax = 10;
// For routers to learn that a worker leaves. A router that confirms later retries elsewhere what
// the worker refuses.
constexpr Duration kLeaveGrace = std::chrono::seconds(2);
// From the end of draining, or a signal, until a process is killed.
constexpr Duration kExitGrace = std::chrono::seconds(2);

}  // namespace

std::string names_text(const std::vector<std::string>& names) {
  constexpr size_t kNamed = 3;
  std::string text;
  for (size_t i = 0; i < std::min(kNamed, names.size()); ++i) {
    text += (i == 0 ? "" : ", ") + names[i];
  }
  return names.size() <= kNamed ? text
                                : text + " and " + std::to_string(names.size() - kNamed) + " more";
}

const char* to_string(ProcessState state) {
  switch (state) {
    case ProcessState::kWaiting:
      return "waiting";
    case ProcessState::kStarting:
      return "starting";
    case ProcessState::kRegistered:
      return "registered";
    case ProcessState::kReady:
      return "ready";
    case ProcessState::kHung:
      return "hung";
    case ProcessState::kDraining:
      return "draining";
    case ProcessState::kExited:
      return "exited";
    case ProcessState::kBackoff:
      return "backoff";
  }
  PDJOB_CHECK(false, static_cast<int>(state));
}

const char* to_string(Signal signal) {
  switch (signal) {
    case Signal::kTerminate:
      return "Terminate";
    case Signal::kKill:
      return "Kill";
    case Signal::kDumpStacks:
      return "DumpStacks";
  }
  PDJOB_CHECK(false, static_cast<int>(signal));
}

Supervision::Supervision(const JobTiming& timing, std::string nonce, uint64_t incarnations_made)
    : timing_(timing), nonce_(std::move(nonce)), incarnations_made_(incarnations_made) {}

void Supervision::enter(Process& process, ProcessState state, Turn& turn, Instant deadline) {
  process.state = state;
  process.since = turn.now;
  process.deadline = deadline;
}

void Supervision::start(Process& process, const net::WeightSource& weights, Turn& turn) {
  PDJOB_CHECK(!process.alive(), process.name);
  process.restarts += process.incarnation.value > 0 ? 1 : 0;
  process.incarnation = {++incarnations_made_};
  process.engine_id = engine_id_of(process, incarnations_made_);
  process.next_engine_id.clear();
  process.pid = 0;
  process.heard = true;
  process.suspected = process.stands_still = process.killed = process.drain_sent = false;
  process.start_looked_at = false;
  process.killed_for.clear();
  process.next_look = kNever;
  process.looks.begin(0);
  process.starvation.begin(turn.now);
  process.loss = net::LossCause::kUnknown;
  process.entry = {};
  process.load = {};
  process.unusable = false;
  process.troubles = {};
  process.load_told = false;
  process.restart_policy.started(turn.now);
  enter(process, ProcessState::kStarting, turn, turn.now + timing_.start_timeout);
  turn.emit(Spawn{.name = process.name,
                  .role = process.role,
                  .model = process.model,
                  .incarnation = process.incarnation,
                  .engine_id = process.engine_id,
                  .place = process.place,
                  .weights = weights,
                  .demand = process.demand});
}

std::string Supervision::engine_id_of(const Process& process, uint64_t number) const {
  return process.name + "." + nonce_ + "." + std::to_string(number);
}

bool Supervision::adopt(Process& process, Turn& turn) {
  process.heartbeats.begin(turn.now);
  process.starvation.begin(turn.now);
  process.restart_policy.started(turn.now);
  switch (process.state) {
    case ProcessState::kStarting:
      enter(process, ProcessState::kStarting, turn, turn.now + timing_.start_timeout);
      return false;
    case ProcessState::kDraining:
      if (process.entry.engine_id.empty()) {
        kill(process, "", turn);  // It was to end before it had registered.
        return false;
      }
      enter(process, ProcessState::kDraining, turn, turn.now + kLeaveGrace);
      return true;
    case ProcessState::kRegistered:
      enter(process, ProcessState::kRegistered, turn);
      return false;
    case ProcessState::kHung:
      if (process.fate != Fate::kRestart) {  // It hung while it drained.
        kill(process, "", turn);
        enter(process, ProcessState::kDraining, turn);
        return false;
      }
      [[fallthrough]];  // Its heartbeats will tell.
    case ProcessState::kReady:
      process.restart_policy.became_ready();
      enter(process, ProcessState::kReady, turn);
      return false;
    case ProcessState::kWaiting:
    case ProcessState::kExited:
    case ProcessState::kBackoff:
      break;
  }
  PDJOB_CHECK(false, process.name);
}

void Supervision::signal(const Process& process, Signal signal, Turn& turn) {
  for (const PlacePart& part : process.place.parts()) {
    turn.emit(SendSignal{process.incarnation, signal, part.node});
  }
}

void Supervision::repeat_signal(const Process& process, Turn& turn) {
  const bool unregistered = process.entry.engine_id.empty();
  if (process.killed) {
    signal(process, Signal::kKill, turn);
  } else if (process.state == ProcessState::kDraining && process.drain_sent && unregistered) {
    signal(process, Signal::kTerminate, turn);
  }
}

void Supervision::heard(Process& process, Turn& turn) {
  if (!std::exchange(process.heard, true) && process.state == ProcessState::kDraining &&
      process.drain_sent) {
    tell_drain(process, process.deadline - kExitGrace, turn);
  }
}

void Supervision::dismiss(Process& process, Fate fate, Turn& turn) {
  process.fate = fate;
  switch (process.state) {
    case ProcessState::kRegistered:
    case ProcessState::kReady:
      enter(process, ProcessState::kDraining, turn, turn.now + kLeaveGrace);
      break;
    case ProcessState::kStarting:
      enter(process, ProcessState::kDraining, turn, turn.now + kExitGrace);
      process.drain_sent = true;
      signal(process, Signal::kTerminate, turn);
      break;
    case ProcessState::kHung:
      kill(process, "", turn);
      enter(process, ProcessState::kDraining, turn);
      break;
    case ProcessState::kWaiting:
    case ProcessState::kBackoff:
      enter(process, fate == Fate::kEnd ? ProcessState::kExited : ProcessState::kWaiting, turn);
      break;
    case ProcessState::kDraining:
    case ProcessState::kExited:
      break;
  }
}

void Supervision::drain(Process& process, Turn& turn) {
  const Duration lease = process.role == net::Role::kPrefill ? timing_.lease : Duration{};
  drain(process, turn.now + timing_.drain_timeout + lease, turn);
}

void Supervision::drain(Process& process, Instant deadline, Turn& turn) {
  enter(process, ProcessState::kDraining, turn, deadline + kExitGrace);
  process.drain_sent = true;
  tell_drain(process, deadline, turn);
}

void Supervision::tell_drain(Process& process, Instant deadline, Turn& turn) {
  const Duration left = std::max(deadline - turn.now, Duration::zero());
  const auto left_ms = std::chrono::duration_cast<std::chrono::milliseconds>(left).count();
  net::Drain drain{.deadline_ms = static_cast<uint64_t>(left_ms)};
  if (process.fate == Fate::kChangeRole && process.keeps_model) {
    if (process.next_engine_id.empty()) {
      process.next_engine_id = engine_id_of(process, ++incarnations_made_);
    }
    drain.next = {.role = process.next_role,
                  .engine_id = process.next_engine_id,
                  .weights_order = process.weights_order,
                  .weight_version = process.next_version};
  }
  turn.emit(Send{process.name, std::move(drain)});
}

void Supervision::end_now(Process& process, Turn& turn) {
  process.fate = Fate::kEnd;
  kill(process, "", turn);
  enter(process, process.alive() ? ProcessState::kDraining : ProcessState::kExited, turn);
}

void Supervision::kill(Process& process, const std::string& why, Turn& turn) {
  if (process.alive() && !std::exchange(process.killed, true)) {
    if (process.killed_for.empty()) {
      process.killed_for = why;
    }
    signal(process, Signal::kKill, turn);
  }
}

void Supervision::registered(Process& process, const net::Registered& message, Turn& turn) {
  turn.emit(Send{process.name, net::Acknowledge{message.number}});
  if (process.works()) {
    process.entry.adapters = message.worker.adapters;
  }
  if (process.state != ProcessState::kStarting || process.killed) {
    return;
  }
  process.entry = message.worker;
  process.entry.name = process.name;  // Names, roles and standings are ours to give.
  process.entry.role = process.role;
  process.entry.standing = net::Standing::kProving;
  process.heartbeats.begin(turn.now);
  process.next_look = kNever;
  enter(process, ProcessState::kRegistered, turn);
  if (process.is_batch() || process.is_store()) {
    proved(process, turn);
  }
}

void Supervision::beat(Process& process, const net::HeartbeatSent& message, Turn& turn) {
  record_beat(process, turn);
  process.looks.begin(message.waited_us);
  note_waits(process, message.starved_permille / 1000.0, turn);
  process.load = message.load;
  process.unusable = message.unusable;
  process.troubles = message.troubles;
  process.load_told = true;
  if (process.state == ProcessState::kStarting) {
    turn.emit(Send{process.name, net::RegisterAsked{}});  // An earlier launcher knew of it.
  }
  if (process.works()) {
    check_progress(process, turn);
  }
}

void Supervision::beat_as_next(Process& process, Turn& turn) {
  record_beat(process, turn);
  turn.emit(Send{process.name, net::RegisterAsked{}});
}

void Supervision::record_beat(Process& process, Turn& turn) {
  process.heartbeats.beat(turn.now);
  process.suspected = false;
  process.next_look = kNever;
}

void Supervision::note_waits(Process& process, double share, Turn& turn) {
  const Instant since = process.starvation.since();
  if (process.starvation.note(share, turn.now)) {
    const bool ended = !process.starvation.starved();
    turn.emit(ReportStarved{.name = process.name,
                            .share = process.starvation.share(),
                            .ended = ended,
                            .lasted = ended ? turn.now - since : Duration::zero()});
  }
}

// The timer of its heartbeats was due between two looks. A process that slept on is stopped, or
// blocked for good, unless one of its threads that it may wait for had no core.
void Supervision::seen(Process& process, const VitalSigns& signs, Turn& turn) {
  Looks& looks = process.looks;
  if (process.state == ProcessState::kStarting && process.start_looked_at) {
    looks.take(signs);
    seen_starting(process, signs, turn);
  } else if (process.suspected && process.works()) {
    Duration waited = looks.take(signs);
    const double any_waited = looks.share_any_waited();
    if (any_waited >= kWaitsForCores &&
        turn.now - process.heartbeats.last() < kTimesMax * timing_.hang_timeout) {
      const auto others = std::chrono::duration_cast<Duration>(looks.passed() * any_waited);
      waited = std::max(waited, others);
    }
    process.heartbeats.starved(waited, turn.now);
    if (looks.passed() > Duration::zero()) {
      note_waits(process, looks.share_waited(), turn);
    }
    if (looks.slept() && looks.passed() >= kAsleep &&
        (signs.stopped || any_waited < kWaitsForCores)) {
      kill(process, signs.stopped ? "stopped" : "silent", turn);
    }
  }
}

// start_timeout is for the time in which it did not wait for a core.
void Supervision::seen_starting(Process& process, const VitalSigns& signs, Turn& turn) {
  const Duration passed = turn.now - process.since;
  const Duration most = kTimesMax * timing_.start_timeout;
  const Duration own =
      std::max(passed - std::chrono::microseconds(signs.all_waited_us), passed / kTimesMax);
  const bool again = process.looks.passed() > Duration::zero();
  note_waits(process, again ? process.looks.share_any_waited() : 1 - seconds(own) / seconds(passed),
             turn);
  if (own < timing_.start_timeout) {
    process.start_looked_at = false;
    process.next_look = kNever;
    process.deadline = turn.now + (timing_.start_timeout - own);
  } else if (process.looks.share_any_waited() >= kWaitsForCores && passed < most) {
    process.deadline = turn.now + kLookGrace;
  }
}

// Two reports in a row are needed: a worker that was stopped together with us, and now continues,
// is not hung.
void Supervision::check_progress(Process& process, Turn& turn) {
  const net::WorkerLoad& load = process.load;
  const auto still =
      std::chrono::milliseconds(load.standstill_ms - std::min(load.starved_ms, load.standstill_ms));
  const Duration limit = progress_limit(process);
  const bool again = std::exchange(process.stands_still, still >= limit);
  if (!again || !process.stands_still || process.killed || process.is_router()) {
    return;
  }
  process.loss = net::LossCause::kHang;
  process.killed_for = "hung";
  process.hangs += 1;
  enter(process, ProcessState::kHung, turn, turn.now + kDumpGrace);
  turn.emit(SendSignal{process.incarnation, Signal::kDumpStacks, process.place.node});
}

// An embedded engine knows its steps and may count as hung sooner than progress_timeout. What is
// known of another engine is too little for that; it may only count as hung later.
Duration Supervision::progress_limit(const Process& process) const {
  const Duration patience = std::chrono::milliseconds(process.load.patience_ms);
  if (process.is_foreign()) {
    return std::max(timing_.progress_timeout, patience);
  }
  return patience == Duration::zero() ? timing_.progress_timeout
                                      : std::min(timing_.progress_timeout, patience);
}

void Supervision::changed_role(Process& process, Turn& turn) {
  PDJOB_CHECK(!process.next_engine_id.empty(), process.name);
  process.engine_id = std::exchange(process.next_engine_id, {});
  process.role = process.next_role;
  process.fate = Fate::kRestart;
  process.suspected = process.stands_still = process.drain_sent = false;
  process.next_look = kNever;
  process.entry = {};
  process.load = {};
  process.unusable = false;
  process.troubles = {};
  process.load_told = false;
  process.loss = net::LossCause::kUnknown;
  process.restart_policy.started(turn.now);
  enter(process, ProcessState::kStarting, turn);
}

void Supervision::proved(Process& process, Turn& turn) {
  if (process.state == ProcessState::kRegistered) {
    enter(process, ProcessState::kReady, turn);
    process.restart_policy.became_ready();
  }
}

void Supervision::died(Process& process, const std::string& how, net::LossCause cause, Turn& turn) {
  const bool hung = process.loss == net::LossCause::kHang;  // The hang is the cause of death.
  process.last_exit = process.killed_for.empty() ? how : process.killed_for + ", then " + how;
  process.loss = hung ? process.loss : cause;
  process.crashes += process.loss == net::LossCause::kCrash ? 1 : 0;
  process.pid = 0;
  process.suspected = false;
  switch (process.fate) {
    case Fate::kEnd:
      enter(process, ProcessState::kExited, turn);
      break;
    case Fate::kChangeRole:
      enter(process, ProcessState::kWaiting, turn);
      break;
    case Fate::kRestart:
      enter(process, ProcessState::kBackoff, turn, process.restart_policy.died(turn.now));
      break;
  }
}

void Supervision::time_passed(Process& process, Turn& turn) {
  if (process.alive() && turn.now >= process.deadline) {
    const bool leaving = process.state == ProcessState::kDraining && !process.drain_sent;
    const bool registering = process.state == ProcessState::kStarting;
    if (leaving) {
      drain(process, turn);
    } else if (registering && !std::exchange(process.start_looked_at, true)) {
      process.deadline = turn.now + kLookGrace;
      process.next_look = turn.now;
    } else {
      process.deadline = kNever;
      kill(process, registering ? "did not register in time" : "", turn);
    }
  }
  if (process.works() && !process.killed) {
    check_heartbeat(process, turn);
  }
  if (looks_due(process) <= turn.now) {
    process.next_look = turn.now + kLookAgain;
    turn.emit(LookAt{process.incarnation, process.place.node});
  }
}

void Supervision::check_heartbeat(Process& process, Turn& turn) {
  const Duration silent = turn.now - process.heartbeats.last();
  if (turn.now >= process.heartbeats.silent_for(timing_.hang_timeout)) {
    kill(process, "silent", turn);
    return;
  }
  if (!process.suspected &&
      silent >= process.heartbeats.silence_allowed(timing_.heartbeat_timeout)) {
    process.suspected = true;
    process.next_look = turn.now;
  }
}

Instant Supervision::looks_due(const Process& process) {
  const bool looks = process.works() || process.state == ProcessState::kStarting;
  return looks && !process.killed ? process.next_look : kNever;
}

Instant Supervision::due(const Process& process) const {
  const Instant due = std::min(process.deadline, looks_due(process));
  if (!process.works() || process.killed) {
    return due;
  }
  const Heartbeats& heartbeats = process.heartbeats;
  const Instant silent =
      process.suspected ? heartbeats.silent_for(timing_.hang_timeout)
                        : heartbeats.last() + heartbeats.silence_allowed(timing_.heartbeat_timeout);
  return std::min(due, silent);
}

Instant Supervision::start_due(const Process& process, Instant now) const {
  if (process.killed) {
    return now;
  }
  const Instant due = process.since + timing_.start_timeout;
  if (process.state == ProcessState::kStarting && now >= due && process.deadline != kNever) {
    return std::max(now, process.deadline);
  }
  const bool proves = process.state == ProcessState::kRegistered && process.starvation.starved() &&
                      now < process.since + kTimesMax * timing_.start_timeout;
  return proves ? now + kLookGrace : now;
}

}  // namespace pdjob::launcher
