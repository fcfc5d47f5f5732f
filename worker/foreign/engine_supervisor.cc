#include "worker/foreign/engine_supervisor.h"

#include <algorithm>
#include <utility>

#include "engine/recipes/version.h"

namespace pdjob::worker {
namespace {

template <class Unit>
uint64_t count(Duration duration) {
  return static_cast<uint64_t>(std::chrono::duration_cast<Unit>(duration).count());
}

}  // namespace

void EngineSupervisor::step(const SupervisorEvent& event, Instant now,
                            std::vector<SupervisorEffect>& effects) {
  Turn turn{now, effects};
  if (state_ == State::kNew) {
    start(turn);
  }
  if (state_ != State::kGone) {
    std::visit([&](const auto& body) { on(body, turn); }, event);
  }
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
          .phases = pace_.phases(now),
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

void EngineSupervisor::start(Turn& turn) {
  state_ = rules_.follows ? State::kServing : State::kStarting;
  deadline_ = rules_.follows ? kNever : turn.now + rules_.start_timeout;
  next_ask_ = rules_.follows ? kNever : turn.now + kPollInterval;
  turn.emit(StartEngine{});
}

void EngineSupervisor::ask_health(Turn& turn) {
  next_ask_ = kNever;
  asked_at_ = turn.now;
  turn.emit(AskHealth{});
}

void EngineSupervisor::next_poll(Turn& turn) {
  next_ask_ = turn.now + (state_ == State::kDraining ? kDrainPollInterval : kPollInterval);
}

void EngineSupervisor::on(const HealthAnswered& event, Turn& turn) {
  const Instant asked = std::exchange(asked_at_, kNever);
  if (state_ == State::kStarting) {
    if (event.health != Health::kWell) {
      next_poll(turn);
    } else if (!rules_.needs.empty()) {
      turn.emit(AskVersion{});
    } else {
      warm_up(turn);
    }
    return;
  }
  if (!watched()) {
    return;
  }
  silent_since_ = event.health == Health::kSilent ? std::min(silent_since_, asked) : kNever;
  if (event.health != Health::kSilent) {
    unwell_since_ = event.health == Health::kWell ? kNever : std::min(unwell_since_, turn.now);
  }
  if (rules_.has_metrics) {
    asked_at_ = turn.now;
    turn.emit(AskLoad{});
  } else {
    next_poll(turn);
  }
}

void EngineSupervisor::on(const VersionAnswered& event, Turn& turn) {
  if (state_ != State::kStarting) {
    return;
  }
  if (!engine::is_release(event.version)) {
    turn.emit(SupervisorNote{rules_.make + " has no version that can be compared: nobody knows "
                                           "whether it has what the job file asks for"});
    warm_up(turn);
    return;
  }
  for (const VersionNeed& need : rules_.needs) {
    if (engine::is_older(event.version, need.since)) {
      kill(rules_.make + " " + event.version + " is too old for " + need.what +
               ", which came with " + need.since + ": install a newer one, or do without",
           turn);
      return;
    }
  }
  warm_up(turn);
}

void EngineSupervisor::warm_up(Turn& turn) {
  if (!rules_.warms_up) {
    serve(turn);
    return;
  }
  state_ = State::kWarmingUp;
  turn.emit(SupervisorNote{rules_.make + " answers, and is warmed up"});
  turn.emit(WarmUp{});
}

void EngineSupervisor::on(const WarmedUp& event, Turn& turn) {
  if (state_ != State::kWarmingUp) {
    return;
  }
  if (event.error.empty()) {
    serve(turn);
  } else {
    kill(rules_.make + " failed its first request: " + event.error, turn);
  }
}

void EngineSupervisor::serve(Turn& turn) {
  state_ = State::kServing;
  deadline_ = kNever;
  quiet_since_ = turn.now;
  turn.emit(Serve{});
  next_poll(turn);
}

// --- its work

void EngineSupervisor::on(const LoadAnswered& event, Turn& turn) {
  const Instant asked = std::exchange(asked_at_, kNever);
  if (!watched()) {
    return;
  }
  silent_since_ = event.answered ? kNever : std::min(silent_since_, asked);
  if (event.sample) {
    take(*event.sample, turn);
  }
  if (watched()) {
    next_poll(turn);
  }
}

void EngineSupervisor::take(const EngineSample& sample, Turn& turn) {
  // A chunked prefill moves only the KV in use until its last chunk. An engine whose counters never
  // grew may have none by these names: it is not judged by them.
  const bool grew = sample.progress != sample_.progress || sample.kv_used != sample_.kv_used;
  const bool judged = sample.works() && sample.progress > 0;
  pace_.take(sample, grew && stuck_since_ != kNever ? turn.now - stuck_since_ : Duration::zero(),
             turn.now);
  stuck_since_ = !judged || grew ? kNever : std::min(stuck_since_, turn.now);
  const bool idle = sample.idle();
  quiet_since_ = idle && !grew ? std::min(quiet_since_, turn.now) : (idle ? turn.now : kNever);
  sample_ = sample;
  if (state_ == State::kDraining) {
    idle_samples_ = idle ? idle_samples_ + 1 : 0;
    end_if_idle(turn);
  }
}

void EngineSupervisor::on(const EngineStarved& event, Turn& turn) {
  for (Instant* const since : {&asked_at_, &silent_since_, &unwell_since_, &stuck_since_}) {
    if (*since != kNever) {
      *since = std::min(*since + event.waited, turn.now);
    }
  }
  if (state_ == State::kStarting || state_ == State::kWarmingUp) {
    deadline_ += event.waited;
  }
}

// --- the end

void EngineSupervisor::on(const DrainAsked& event, Turn& turn) {
  draining_ = true;
  // With less time than the lease, the whole job ends: nobody is left to fetch KV.
  lease_ = event.within > rules_.lease ? rules_.lease : Duration::zero();
  switch (state_) {
    case State::kServing:
      state_ = State::kDraining;
      if (!rules_.has_metrics) {
        terminate(turn);  // It has to finish its requests by itself.
        deadline_ = kNever;
      } else if (asked_at_ == kNever) {
        next_poll(turn);
      }
      break;
    case State::kStarting:
    case State::kWarmingUp:
      terminate(turn);
      break;
    default:
      break;
  }
}

// A prefill engine keeps KV that decode engines still fetch.
void EngineSupervisor::end_if_idle(Turn& turn) {
  if (idle_samples_ >= kIdleSamples && quiet_since_ != kNever &&
      turn.now - quiet_since_ >= lease_) {
    terminate(turn);
  }
}

void EngineSupervisor::terminate(Turn& turn) {
  state_ = State::kEnding;
  next_ask_ = kNever;
  deadline_ = turn.now + kTerminateGrace;
  turn.emit(TerminateEngine{});
}

void EngineSupervisor::kill(const std::string& error, Turn& turn) {
  if (error_.empty()) {
    error_ = error;
  }
  state_ = State::kEnding;
  next_ask_ = kNever;
  deadline_ = turn.now + kKillGrace;
  turn.emit(KillEngine{});
}

void EngineSupervisor::on(const EndAsked& /*event*/, Turn& turn) { kill("", turn); }

void EngineSupervisor::on(const EngineExited& event, Turn& turn) {
  if (state_ == State::kEnding) {
    const bool failed = !error_.empty() && !event.cause.empty();
    finish(failed ? error_ + ". Likely cause: " + event.cause : error_, turn);
    return;
  }
  const char* const when = watched() ? " while it served" : " while it started";
  finish(rules_.make + " ended with " + event.how + when +
             (event.cause.empty() ? std::string() : ". Likely cause: " + event.cause),
         turn);
}

void EngineSupervisor::finish(const std::string& error, Turn& turn) {
  state_ = State::kGone;
  if (draining_ && error.empty()) {
    turn.emit(TellDrained{});
  }
  turn.emit(EndWorker{error});
}

void EngineSupervisor::on(const TimePassed& /*event*/, Turn& turn) {
  if (turn.now >= deadline_) {
    if (state_ == State::kEnding) {
      kill("", turn);
    } else {
      kill(rules_.make + " was not ready within " +
               std::to_string(
                   std::chrono::duration_cast<std::chrono::seconds>(rules_.start_timeout).count()) +
               " s",
           turn);
    }
  }
  if (turn.now >= next_ask_) {
    ask_health(turn);
  }
}

}  // namespace pdjob::worker
