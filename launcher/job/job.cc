#include "launcher/job/job.h"

#include <algorithm>

#include "common/check.h"
#include "common/exit_code.h"

namespace pdjob::launcher {

namespace {

// Time from the end of draining until the remaining processes are killed.
constexpr Duration kExitGrace = std::chrono::seconds(2);
// Time from asking a hung worker for its stacks until it is killed. Writing them takes
// milliseconds.
constexpr Duration kDumpGrace = std::chrono::seconds(2);

bool is_router(net::Role role) { return role == net::Role::kRouter; }
bool is_prefill(net::Role role) { return role == net::Role::kPrefill; }
bool is_decode(net::Role role) { return role == net::Role::kDecode || role == net::Role::kBoth; }

// True for processes that serve requests for that model; routers serve all models.
bool is_on_path(const Process& process, const std::string& model) {
  return is_router(process.role) || process.model == model;
}

bool is_member(const Process& process) { return process.serving() && !process.suspected; }

std::string in_seconds(Duration duration) {
  const auto whole = std::chrono::duration_cast<std::chrono::seconds>(duration).count();
  return std::to_string(whole) + " s";
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

bool Process::alive() const {
  return state == ProcessState::kStarting || state == ProcessState::kRegistered ||
         state == ProcessState::kReady || state == ProcessState::kHung ||
         state == ProcessState::kDraining;
}

Job::Job(std::vector<ProcessPlan> plan, const JobTiming& timing, std::string nonce)
    : timing_(timing), nonce_(std::move(nonce)) {
  for (ProcessPlan& planned : plan) {
    if (!is_router(planned.role) && std::ranges::find(models_, planned.model) == models_.end()) {
      models_.push_back(planned.model);
    }
    processes_.push_back({.name = std::move(planned.name),
                          .role = planned.role,
                          .model = std::move(planned.model),
                          .restart_policy = RestartPolicy(timing.restart)});
  }
}

void Job::step(const Event& event, Instant now, std::vector<Effect>& effects) {
  now_ = now;
  effects_ = &effects;
  forgive_own_sleep();
  std::visit([this](const auto& body) { on(body); }, event);
  if (state_ == JobState::kStarting || state_ == JobState::kReady) {
    probe_next();
    check_ready();
  }
  wakeup_promised_ = next_wakeup();
  effects_ = nullptr;
}

Instant Job::next_wakeup() const {
  if (state_ == JobState::kDone) {
    return kNever;
  }
  Instant next = std::min(start_deadline_, stop_deadline_);
  if (state_ == JobState::kDraining) {
    return next;
  }
  for (const Process& process : processes_) {
    next = std::min(next, process.deadline);
    if (process.serving() && !process.killed) {
      next =
          std::min(next, process.last_heartbeat + (process.suspected ? timing_.hang_timeout
                                                                     : timing_.heartbeat_timeout));
    }
  }
  if (!probe_ && probe_path()) {
    next = std::min(next, probe_not_before_);
  }
  return next;
}

std::string Job::waiting_for() const {
  std::string text;
  for (const Process& process : processes_) {
    if (process.state != ProcessState::kReady) {
      text += (text.empty() ? "" : ", ") + process.name + " is " + to_string(process.state);
    }
  }
  if (!text.empty() && !last_probe_error_.empty()) {
    text += "; last probe: " + last_probe_error_;
  }
  return text;
}

// --- starting, dying, restarting

void Job::on(const Started&) {
  PDJOB_CHECK(incarnations_made_ == 0);
  start_deadline_ = now_ + timing_.start_timeout;
  for (Process& process : processes_) {
    spawn(process);
  }
}

void Job::spawn(Process& process) {
  process.incarnation = {++incarnations_made_};
  process.engine_id = process.name + "." + nonce_ + "." + std::to_string(process.incarnation.value);
  process.pid = 0;
  process.suspected = process.stands_still = process.killed = false;
  process.loss = net::LossCause::kUnknown;
  process.entry = {};
  process.load = {};
  process.membership_applied = 0;
  process.restart_policy.started(now_);
  enter(process, ProcessState::kStarting, now_ + timing_.start_timeout);
  emit(Spawn{process.name, process.incarnation, process.engine_id});
}

void Job::on(const Spawned& event) {
  if (Process* process = find(event.incarnation)) {
    process->pid = event.pid;
  }
}

void Job::on(const SpawnFailed& event) {
  if (Process* process = find(event.incarnation)) {
    died(*process, event.reason, net::LossCause::kOutside);
  }
}

void Job::on(const ProcessExited& event) {
  if (Process* process = find(event.incarnation); process != nullptr && process->alive()) {
    died(*process, event.how, event.crashed ? net::LossCause::kCrash : net::LossCause::kOutside);
  }
}

void Job::died(Process& process, const std::string& how, net::LossCause cause) {
  const bool was_serving = process.serving();
  const bool hung = process.loss == net::LossCause::kHang;  // The hang is the cause of death.
  process.last_exit = hung ? "hung, then " + how : how;
  process.loss = hung ? process.loss : cause;
  process.crashes += process.loss == net::LossCause::kCrash ? 1 : 0;
  process.pid = 0;
  if (state_ == JobState::kDraining) {
    enter(process, ProcessState::kExited);
    drain_next();
    return;
  }
  const std::optional<Instant> again = process.restart_policy.died(now_);
  if (!again) {
    enter(process, ProcessState::kExited);
    fail(process.name + " died " + std::to_string(process.restart_policy.deaths_in_a_row()) +
             " times before it was ready, last: " + how,
         process.name);
    return;
  }
  enter(process, ProcessState::kBackoff, *again);
  if (was_serving) {
    publish_membership();
  }
}

void Job::enter(Process& process, ProcessState state, Instant deadline) {
  process.state = state;
  process.since = now_;
  process.deadline = deadline;
}

void Job::on(const TimePassed&) {
  if (state_ == JobState::kStarting && now_ >= start_deadline_) {
    const auto stuck = std::ranges::find_if(
        processes_, [](const Process& p) { return p.state != ProcessState::kReady; });
    fail("not ready after " + in_seconds(timing_.start_timeout) + ": " + waiting_for(),
         stuck == processes_.end() ? "" : stuck->name);
  } else if (state_ == JobState::kDraining && now_ >= stop_deadline_) {
    stop_deadline_ = kNever;
    kill_all();
  } else if (state_ != JobState::kDraining && state_ != JobState::kDone) {
    std::ranges::for_each(processes_, [this](Process& process) { check_process(process); });
  }
}

void Job::check_process(Process& process) {
  if (now_ >= process.deadline) {
    if (process.state == ProcessState::kBackoff) {
      ++process.restarts;
      spawn(process);
    } else {  // It never registered, or it hung and has written its stacks.
      process.deadline = kNever;
      process.killed = true;
      emit(SendSignal{process.incarnation, Signal::kKill});
    }
  }
  if (process.serving() && !process.killed) {
    check_heartbeat(process);
  }
}

void Job::check_heartbeat(Process& process) {
  const Duration silent = now_ - process.last_heartbeat;
  if (silent >= timing_.hang_timeout) {
    process.killed = true;
    emit(SendSignal{process.incarnation, Signal::kKill});
  }
  if (silent >= timing_.heartbeat_timeout && !process.suspected) {
    process.suspected = true;
    publish_membership();
  }
}

// Two reports in a row are needed: a worker that was stopped together with us, and now continues,
// is not hung.
void Job::check_progress(Process& process) {
  const auto still = std::chrono::milliseconds(process.load.standstill_ms);
  const bool again = std::exchange(process.stands_still, still >= timing_.progress_timeout);
  if (!again || !process.stands_still || process.killed || is_router(process.role)) {
    return;
  }
  process.loss = net::LossCause::kHang;
  process.hangs += 1;
  enter(process, ProcessState::kHung, now_ + kDumpGrace);
  emit(SendSignal{process.incarnation, Signal::kDumpStacks});
  publish_membership();
}

// Missing heartbeats mean nothing if we were stopped ourselves (a stopped launcher, a paused
// machine). All processes then count as heard now.
void Job::forgive_own_sleep() {
  if (wakeup_promised_ != kNever && now_ > wakeup_promised_ + timing_.heartbeat_timeout / 2) {
    for (Process& process : processes_) {
      process.last_heartbeat = now_;
    }
  }
}

// --- messages

void Job::on(const MessageArrived& event) {
  Process* process = find(event.peer);
  if (process == nullptr || !process->alive() || state_ == JobState::kDone) {
    return;
  }
  if (const auto* registered = std::get_if<net::Registered>(&event.message)) {
    on_registered(*process, *registered);
  } else if (const auto* heartbeat = std::get_if<net::HeartbeatSent>(&event.message)) {
    on_heartbeat(*process, *heartbeat);
  } else if (const auto* applied = std::get_if<net::MembershipApplied>(&event.message)) {
    on_applied(*process, *applied);
  } else if (std::holds_alternative<net::Drained>(event.message) &&
             process->state == ProcessState::kDraining) {
    emit(Send{process->name, net::Shutdown{}});
  }
}

void Job::on_registered(Process& process, const net::Registered& message) {
  if (message.worker.engine_id != process.engine_id) {
    return;
  }
  emit(Send{process.name, net::Acknowledge{}});
  if (process.state != ProcessState::kStarting || process.killed) {
    return;
  }
  process.entry = message.worker;
  process.entry.name = process.name;  // Names and roles are ours to give.
  process.entry.role = process.role;
  process.last_heartbeat = now_;
  enter(process, ProcessState::kRegistered);
  publish_membership();
}

void Job::on_heartbeat(Process& process, const net::HeartbeatSent& message) {
  if (message.engine_id != process.engine_id) {
    return;
  }
  process.last_heartbeat = now_;
  process.load = message.load;
  if (!process.serving()) {
    return;
  }
  if (state_ != JobState::kDraining) {
    check_progress(process);
  }
  if (!process.serving()) {
    return;
  }
  if (std::exchange(process.suspected, false)) {
    publish_membership();  // A router may have missed some; a worker is back.
  }
  if (!is_router(process.role)) {
    report_load(process);
  } else if (process.membership_applied < membership_version_ &&
             now_ >= process.membership_sent + timing_.membership_retry) {
    send_membership(process, 0);  // One of the two messages was lost.
  }
}

void Job::on_applied(Process& process, const net::MembershipApplied& message) {
  if (message.engine_id == process.engine_id && message.version <= membership_version_) {
    process.membership_applied = std::max(process.membership_applied, message.version);
  }
}

net::Membership Job::membership(uint64_t since) const {
  net::Membership list{.version = membership_version_, .since = since};
  for (const Process& process : processes_) {
    if (process.changed_in <= since) {
      continue;
    }
    if (process.member) {
      (is_router(process.role) ? list.routers : list.workers).push_back(*process.member);
    }
    if (process.departure && (since > 0 || process.departure->cause >= net::LossCause::kCrash)) {
      list.left.push_back(*process.departure);
    }
  }
  return list;
}

void Job::publish_membership() {
  ++membership_version_;
  for (Process& process : processes_) {
    if (update_member(process)) {
      process.changed_in = membership_version_;
    }
  }
  for (Process& process : processes_) {
    if (is_router(process.role) && process.serving()) {
      send_membership(process, process.membership_applied);
    }
  }
}

// Returns true if routers must learn of a change: the member itself, or why it left.
bool Job::update_member(Process& process) {
  const auto member = is_member(process) ? std::optional(process.entry) : std::nullopt;
  const auto before = process.departure;
  const auto id_of = [](const auto& entry) { return entry ? entry->engine_id : std::string(); };
  if (process.member && id_of(member) != id_of(process.member)) {
    process.departure = {.name = process.name, .engine_id = process.member->engine_id};
  }
  if (process.departure && process.departure->engine_id == process.engine_id) {
    process.departure->cause = process.loss;
    if (member) {
      process.departure.reset();  // It was only suspected, and is back.
    }
  }
  return std::exchange(process.member, member) != member || before != process.departure;
}

void Job::send_membership(Process& router, uint64_t since) {
  router.membership_sent = now_;
  emit(Send{router.name, membership(since)});
}

void Job::report_load(const Process& worker) {
  for (const Process& process : processes_) {
    if (is_router(process.role) && process.serving()) {
      emit(Send{process.name, net::LoadReported{worker.name, worker.engine_id, worker.load}});
    }
  }
}

// --- probing: a process is ready when a request went through it

// The next path to probe.
std::optional<Job::ProbePath> Job::probe_path() const {
  for (size_t i = 0; i < models_.size(); ++i) {
    if (auto path = probe_path(models_[(next_model_ + i) % models_.size()])) {
      return path;
    }
  }
  return std::nullopt;
}

// The path through one model's workers, once the router has confirmed that it knows them. The
// membership and the probe reach the router by different ways.
std::optional<Job::ProbePath> Job::probe_path(const std::string& model) const {
  const auto all_of_some = [&](bool (*fits)(net::Role)) {
    bool serving = false;
    bool exists = false;
    for (const Process& process : processes_) {
      const bool counts = fits(process.role) && is_on_path(process, model);
      exists = exists || counts;
      serving = serving || (counts && process.serving() && !process.suspected);
    }
    return serving || !exists;
  };
  const bool path_exists =
      all_of_some(is_router) && all_of_some(is_prefill) && all_of_some(is_decode);
  const bool wanted =
      path_exists && state_ != JobState::kDraining &&
      std::ranges::any_of(processes_, [&](const Process& p) {
        return is_on_path(p, model) && p.state == ProcessState::kRegistered && !p.suspected;
      });
  if (!wanted) {
    return std::nullopt;
  }
  const ProbePath path{.router = pick_for_probe(is_router, model),
                       .prefill = pick_for_probe(is_prefill, model),
                       .decode = pick_for_probe(is_decode, model)};
  PDJOB_CHECK(path.router != nullptr && path.decode != nullptr);
  const uint64_t since =
      std::max(path.decode->changed_in, path.prefill == nullptr ? 0 : path.prefill->changed_in);
  return path.router->membership_applied >= since ? std::optional(path) : std::nullopt;
}

// Prefers a process not yet probed, otherwise any that serves.
const Process* Job::pick_for_probe(bool (*fits)(net::Role), const std::string& model) const {
  const Process* picked = nullptr;
  for (const Process& process : processes_) {
    if (!fits(process.role) || !is_on_path(process, model) || !process.serving() ||
        process.suspected) {
      continue;
    }
    if (process.state == ProcessState::kRegistered) {
      return &process;
    }
    picked = picked == nullptr ? &process : picked;
  }
  return picked;
}

void Job::probe_next() {
  if (probe_ || now_ < probe_not_before_) {
    return;
  }
  const std::optional<ProbePath> path = probe_path();
  if (!path) {
    return;
  }
  const auto& [router, prefill, decode] = *path;
  probe_ = ProbeInFlight{.id = ++probes_made_,
                         .through = {router->incarnation, decode->incarnation},
                         .path = decode->name};
  Probe probe{.probe = probe_->id,
              .model = decode->model,
              .router = router->name,
              .prefill = "",
              .decode = decode->name};
  const auto probed = std::ranges::find(models_, decode->model) - models_.begin();
  next_model_ = (static_cast<size_t>(probed) + 1) % models_.size();
  if (prefill != nullptr) {
    probe_->through.push_back(prefill->incarnation);
    probe_->path = prefill->name + " -> " + decode->name;
    probe_->must_move_kv = true;
    probe.prefill = prefill->name;
  }
  emit(std::move(probe));
}

void Job::on(const ProbeSucceeded& event) {
  if (!probe_ || probe_->id != event.probe) {
    return;
  }
  if (probe_->must_move_kv && event.kv_bytes == 0) {
    probe_failed("answered, but moved no KV");
    return;
  }
  for (const Incarnation incarnation : probe_->through) {
    Process* process = find(incarnation);
    if (process != nullptr && process->state == ProcessState::kRegistered) {
      enter(*process, ProcessState::kReady);
      process->restart_policy.became_ready();
    }
  }
  probe_.reset();
  last_probe_error_.clear();
}

void Job::on(const ProbeFailed& event) {
  if (probe_ && probe_->id == event.probe) {
    probe_failed(event.reason);
  }
}

void Job::probe_failed(const std::string& reason) {
  last_probe_error_ = probe_->path + ": " + reason;
  probe_.reset();
  probe_not_before_ = now_ + timing_.probe_retry;
}

void Job::check_ready() {
  const bool all_ready = std::ranges::all_of(
      processes_, [](const Process& p) { return p.state == ProcessState::kReady; });
  if (state_ == JobState::kStarting && all_ready) {
    state_ = JobState::kReady;
    start_deadline_ = kNever;
    emit(ReportReady{});
  }
}

// --- stopping: routers first, so that workers finish accepted requests; then workers

void Job::on(const StopAsked& event) {
  if (state_ == JobState::kDone) {
    return;
  }
  if (state_ == JobState::kDraining) {
    kill_all();
    return;
  }
  state_ = JobState::kDraining;
  exit_code_ = event.exit_code;
  start_deadline_ = kNever;
  drain_deadline_ = now_ + timing_.stop_timeout;
  stop_deadline_ = drain_deadline_ + kExitGrace;
  emit(CloseDoors{});
  for (Process& process : processes_) {
    if (process.state == ProcessState::kStarting || process.state == ProcessState::kHung) {
      const bool hung = process.state == ProcessState::kHung;
      enter(process, ProcessState::kDraining);
      emit(SendSignal{process.incarnation, hung ? Signal::kKill : Signal::kTerminate});
    } else if (!process.alive()) {
      enter(process, ProcessState::kExited);
    }
  }
  drain_next();
}

void Job::drain_next() {
  const bool routers_alive = std::ranges::any_of(
      processes_, [](const Process& p) { return is_router(p.role) && p.alive(); });
  for (Process& process : processes_) {
    if (process.serving() && (is_router(process.role) || !routers_alive)) {
      drain(process);
    }
  }
  finish_if_all_exited();
}

void Job::drain(Process& process) {
  const Duration left = std::max(drain_deadline_ - now_, Duration::zero());
  const auto left_ms = std::chrono::duration_cast<std::chrono::milliseconds>(left).count();
  enter(process, ProcessState::kDraining);
  emit(Send{process.name, net::Drain{.deadline_ms = static_cast<uint64_t>(left_ms)}});
}

void Job::kill_all() {
  for (Process& process : processes_) {
    if (process.alive()) {
      enter(process, ProcessState::kDraining);
      emit(SendSignal{process.incarnation, Signal::kKill});
    } else {
      enter(process, ProcessState::kExited);
    }
  }
  finish_if_all_exited();
}

// A failed job is killed without draining. Either nobody saw it ready, or all processes that could
// answer are gone.
void Job::fail(const std::string& reason, const std::string& culprit) {
  PDJOB_CHECK(state_ == JobState::kStarting || state_ == JobState::kReady);
  state_ = JobState::kDraining;
  exit_code_ = kExitFailed;
  failure_ = reason;
  culprit_ = culprit;
  start_deadline_ = kNever;
  emit(CloseDoors{});
  kill_all();
}

void Job::finish_if_all_exited() {
  const bool all_exited = std::ranges::all_of(
      processes_, [](const Process& p) { return p.state == ProcessState::kExited; });
  if (state_ == JobState::kDraining && all_exited) {
    state_ = JobState::kDone;
    emit(Finish{exit_code_, failure_, culprit_});
  }
}

// --- looking up

Process* Job::find(Incarnation incarnation) {
  const auto found = std::ranges::find(processes_, incarnation, &Process::incarnation);
  return found == processes_.end() ? nullptr : &*found;
}

Process* Job::find(const std::string& name) {
  const auto found = std::ranges::find(processes_, name, &Process::name);
  return found == processes_.end() ? nullptr : &*found;
}

}  // namespace pdjob::launcher
