#include "worker/foreign/engine_supervisor.h"

#include <algorithm>
#include <utility>

namespace pdjob::worker {
namespace {

template <class Unit>
uint64_t count(Duration duration) {
  return static_cast<uint64_t>(std::chrono::duration_cast<Unit>(duration).count());
}

}  // namespace

void EngineSupervisor::step(const SupervisorEvent& event, Instant now,
                            std::vector<SupervisorEffect>& effects) {
  now_ = now;
  effects_ = &effects;
  if (state_ == State::kNew) {
    start();
  }
  if (state_ != State::kGone) {
    std::visit([this](const auto& body) { on(body); }, event);
  }
  effects_ = nullptr;
}

Instant EngineSupervisor::next_wakeup() const {
  return state_ == State::kGone ? kNever : std::min(next_ask_, deadline_);
}

namespace {

// An engine may tell anything.
uint64_t sum_us(const LatencyTotal& total) {
  constexpr double kSecondsMax = 1e9;
  constexpr double kMicroseconds = 1e6;
  return static_cast<uint64_t>(std::clamp(total.seconds, 0.0, kSecondsMax) * kMicroseconds);
}

}  // namespace

net::WorkerLoad EngineSupervisor::load(Instant now) const {
  return {.requests_running = static_cast<uint32_t>(sample_.running),
          .requests_queued = static_cast<uint32_t>(sample_.queued),
          .kv_rows_used = sample_.kv_used,
          .kv_rows_max = sample_.kv_max,
          .standstill_ms = count<std::chrono::milliseconds>(standstill(now)),
          .kv_received = sample_.kv_received,
          .patience_ms = count<std::chrono::milliseconds>(pace_.patience()),
          .ttft_us = count<std::chrono::microseconds>(pace_.ttft()),
          .itl_us = count<std::chrono::microseconds>(pace_.itl()),
          .ttft_sum_us = sum_us(sample_.ttft),
          .ttft_count = sample_.ttft.count,
          .itl_sum_us = sum_us(sample_.itl),
          .itl_count = sample_.itl.count};
}

Duration EngineSupervisor::standstill(Instant now) const {
  if (!watched()) {
    return Duration::zero();
  }
  const Instant since = std::min({asked_at_, silent_since_, unwell_since_, stuck_since_});
  return since == kNever ? Duration::zero() : std::max(now - since, Duration::zero());
}

// --- the start

void EngineSupervisor::start() {
  state_ = State::kStarting;
  deadline_ = now_ + rules_.start_timeout;
  next_ask_ = now_ + kPollInterval;
  emit(StartEngine{});
}

void EngineSupervisor::ask_health() {
  next_ask_ = kNever;
  asked_at_ = now_;
  emit(AskHealth{});
}

void EngineSupervisor::next_poll() {
  next_ask_ = now_ + (state_ == State::kDraining ? kDrainPollInterval : kPollInterval);
}

void EngineSupervisor::on(const HealthAnswered& event) {
  const Instant asked = std::exchange(asked_at_, kNever);
  if (state_ == State::kStarting) {
    if (event.health != Health::kWell) {
      next_poll();
    } else if (rules_.warms_up) {
      state_ = State::kWarmingUp;
      emit(SupervisorNote{rules_.make + " answers, and is warmed up"});
      emit(WarmUp{});
    } else {
      serve();
    }
    return;
  }
  if (!watched()) {
    return;
  }
  silent_since_ = event.health == Health::kSilent ? std::min(silent_since_, asked) : kNever;
  if (event.health != Health::kSilent) {
    unwell_since_ = event.health == Health::kWell ? kNever : std::min(unwell_since_, now_);
  }
  if (rules_.has_metrics) {
    asked_at_ = now_;
    emit(AskLoad{});
  } else {
    next_poll();
  }
}

void EngineSupervisor::on(const WarmedUp& event) {
  if (state_ != State::kWarmingUp) {
    return;
  }
  if (event.error.empty()) {
    serve();
  } else {
    kill(rules_.make + " failed its first request: " + event.error);
  }
}

void EngineSupervisor::serve() {
  state_ = State::kServing;
  deadline_ = kNever;
  quiet_since_ = now_;
  emit(Serve{});
  next_poll();
}

// --- its work

void EngineSupervisor::on(const LoadAnswered& event) {
  const Instant asked = std::exchange(asked_at_, kNever);
  if (!watched()) {
    return;
  }
  silent_since_ = event.answered ? kNever : std::min(silent_since_, asked);
  if (event.sample) {
    take(*event.sample);
  }
  if (watched()) {
    next_poll();
  }
}

void EngineSupervisor::take(const EngineSample& sample) {
  // A chunked prefill moves only the KV in use until its last chunk. An engine whose counters never
  // grew may have none by these names: it is not judged by them.
  const bool grew = sample.progress != sample_.progress || sample.kv_used != sample_.kv_used;
  const bool judged = sample.works() && sample.progress > 0;
  pace_.take(sample, grew && stuck_since_ != kNever ? now_ - stuck_since_ : Duration::zero(), now_);
  stuck_since_ = !judged || grew ? kNever : std::min(stuck_since_, now_);
  const bool idle = sample.idle();
  quiet_since_ = idle && !grew ? std::min(quiet_since_, now_) : (idle ? now_ : kNever);
  sample_ = sample;
  if (state_ == State::kDraining) {
    idle_samples_ = idle ? idle_samples_ + 1 : 0;
    end_if_idle();
  }
}

void EngineSupervisor::on(const EngineStarved& event) {
  for (Instant* const since : {&asked_at_, &silent_since_, &unwell_since_, &stuck_since_}) {
    if (*since != kNever) {
      *since = std::min(*since + event.waited, now_);
    }
  }
  if (state_ == State::kStarting || state_ == State::kWarmingUp) {
    deadline_ += event.waited;
  }
}

// --- the end

void EngineSupervisor::on(const DrainAsked& event) {
  draining_ = true;
  // With less time than the lease, the whole job ends: nobody is left to fetch KV.
  lease_ = event.within > rules_.lease ? rules_.lease : Duration::zero();
  switch (state_) {
    case State::kServing:
      state_ = State::kDraining;
      if (!rules_.has_metrics) {
        terminate();  // It has to finish its requests by itself.
        deadline_ = kNever;
      } else if (asked_at_ == kNever) {
        next_poll();
      }
      break;
    case State::kStarting:
    case State::kWarmingUp:
      terminate();
      break;
    default:
      break;
  }
}

// A prefill engine keeps KV that decode engines still fetch.
void EngineSupervisor::end_if_idle() {
  if (idle_samples_ >= kIdleSamples && quiet_since_ != kNever && now_ - quiet_since_ >= lease_) {
    terminate();
  }
}

void EngineSupervisor::terminate() {
  state_ = State::kEnding;
  next_ask_ = kNever;
  deadline_ = now_ + kTerminateGrace;
  emit(TerminateEngine{});
}

void EngineSupervisor::kill(const std::string& error) {
  if (error_.empty()) {
    error_ = error;
  }
  state_ = State::kEnding;
  next_ask_ = kNever;
  deadline_ = now_ + kKillGrace;
  emit(KillEngine{});
}

void EngineSupervisor::on(const EndAsked& /*event*/) { kill(""); }

void EngineSupervisor::on(const EngineExited& event) {
  if (state_ == State::kEnding) {
    const bool failed = !error_.empty() && !event.cause.empty();
    finish(failed ? error_ + ". Likely cause: " + event.cause : error_);
    return;
  }
  const char* const when = watched() ? " while it served" : " while it started";
  finish(rules_.make + " ended with " + event.how + when +
         (event.cause.empty() ? std::string() : ". Likely cause: " + event.cause));
}

void EngineSupervisor::finish(const std::string& error) {
  state_ = State::kGone;
  if (draining_ && error.empty()) {
    emit(TellDrained{});
  }
  emit(EndWorker{error});
}

void EngineSupervisor::on(const SupervisorTimePassed& /*event*/) {
  if (now_ >= deadline_) {
    if (state_ == State::kEnding) {
      kill("");
    } else {
      kill(rules_.make + " was not ready within " +
           std::to_string(
               std::chrono::duration_cast<std::chrono::seconds>(rules_.start_timeout).count()) +
           " s");
    }
  }
  if (now_ >= next_ask_) {
    ask_health();
  }
}

}  // namespace pdjob::worker
