// How a Job stops (job.h): routers first, so that workers finish accepted requests; then workers,
// and then the stores that they use. The Batch API stops with the routers: its rows in flight run
// again when it is there again. Workers and stores that are to stay warm are left as they are.
#include <algorithm>

#include "common/check.h"
#include "common/exit_code.h"
#include "launcher/job/job.h"

namespace pdjob::launcher {

namespace {

// Time from the end of draining until the remaining processes are killed.
constexpr Duration kStopGrace = std::chrono::seconds(2);

}  // namespace

void Job::on(const StopAsked& event, Turn& turn) {
  if (state_ == JobState::kDone) {
    return;
  }
  if (adopting()) {
    // Only its agent can end what runs on a node, so even a stop at once waits for the nodes. The
    // third time it ends what it knows of.
    stops_asked_.push_back(event);
    if (stops_asked_.size() > 2) {
      give_up_absent(turn);
    }
    return;
  }
  if (state_ == JobState::kDraining) {
    keeps_warm_ = false;
    kill_all(turn);
    return;
  }
  keeps_warm_ = event.keeps_warm && state_ == JobState::kReady;
  state_ = JobState::kDraining;
  exit_code_ = event.exit_code;
  start_deadline_ = kNever;
  drain_deadline_ = turn.now + timing_.stop_timeout;
  stop_deadline_ = drain_deadline_ + kStopGrace;
  turn.emit(CloseDoors{});
  for (Process& process : processes_) {
    if (stays(process)) {
      continue;
    }
    if (process.awaits_drain()) {
      process.fate = Fate::kEnd;  // Its turn comes.
      continue;
    }
    supervision_.dismiss(process, Fate::kEnd, turn);
    if (process.works() && !process.killed) {
      // It had more time, and may have been about to change its role.
      supervision_.drain(process, drain_deadline_, turn);
    }
  }
  drain_next(turn);
}

// Only one that serves, and is to go on, is worth something to the next job.
bool Job::stays(const Process& process) const {
  return keeps_warm_ && (process.is_worker() || process.is_store()) && process.serving() &&
         !process.killed && process.fate == Fate::kRestart;
}

void Job::drain_next(Turn& turn) {
  bool routers_alive = false;
  bool workers_alive = false;
  for (const Process& process : processes_) {
    routers_alive = routers_alive || (process.is_router() && process.alive());
    workers_alive = workers_alive || (process.is_worker() && process.alive());
  }
  for (Process& process : processes_) {
    const bool its_turn = process.is_store()    ? !routers_alive && !workers_alive
                          : process.is_worker() ? !routers_alive
                                                : true;
    if (process.awaits_drain() && its_turn && !stays(process)) {
      supervision_.drain(process, drain_deadline_, turn);
    }
  }
  finish_if_all_exited(turn);
}

void Job::kill_all(Turn& turn) {
  for (Process& process : processes_) {
    if (!stays(process)) {
      supervision_.end_now(process, turn);
    }
  }
  finish_if_all_exited(turn);
}

// A failed job is killed without draining. Either nobody saw it ready, or all processes that could
// answer are gone.
void Job::fail(const std::string& reason, const std::string& culprit, Turn& turn) {
  PDJOB_CHECK(runs());
  state_ = JobState::kDraining;
  exit_code_ = kExitFailed;
  failure_ = reason;
  culprit_ = culprit;
  start_deadline_ = kNever;
  turn.emit(CloseDoors{});
  kill_all(turn);
}

void Job::finish_if_all_exited(Turn& turn) {
  const bool all_exited = std::ranges::all_of(processes_, [this](const Process& process) {
    return process.state == ProcessState::kExited || stays(process);
  });
  if (state_ == JobState::kDraining && all_exited) {
    state_ = JobState::kDone;
    turn.emit(Finish{exit_code_, failure_, culprit_, keeps_warm_});
  }
}

}  // namespace pdjob::launcher
