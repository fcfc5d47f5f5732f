// Supervision: the life of one process. It knows nothing of the others: the Job decides which
// processes exist, where they run and when they must go.
//
// A worker is hung when its engine or a helper thread has work and makes no progress for
// progress_timeout, though heartbeats arrive. The time is shorter if the engine knows its pace. A
// hung worker writes its stacks to its log, and is killed. A process whose heartbeats stop is
// suspected after heartbeat_timeout, or sooner if they came regularly so far (heartbeats.h), and
// killed after hang_timeout. A suspected one is looked at: one that sleeps through two looks,
// though its own timers were due, is killed at once. All this holds for a worker that drains, too.
//
// A starved process is not sick: time in which it waited for a core counts for none of these
// timeouts, nor for start_timeout. One that runs without end is not starved, for it has a core.
// Pure.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>

#include "launcher/job/events.h"

namespace pdjob::launcher {

class Supervision {
 public:
  // `nonce` distinguishes the engine ids of this run of the job from those of other runs.
  // The first incarnation that it makes comes after `incarnations_made`.
  Supervision(const JobTiming& timing, std::string nonce, uint64_t incarnations_made = 0);

  uint64_t incarnations_made() const { return incarnations_made_; }

  // --- orders

  // Starts a process that is not alive and has a place. `weights`: of a worker.
  void start(Process& process, const net::WeightSource& weights, Turn& turn);
  // Goes on with a process that an earlier launcher started. Returns whether it is leaving: the
  // caller then calls drain(), as after dismiss().
  bool adopt(Process& process, Turn& turn);
  // To all its parts.
  static void signal(const Process& process, Signal signal, Turn& turn);
  // Its node has joined: repeats the signal that could not reach it before.
  void repeat_signal(const Process& process, Turn& turn);
  // Makes the process leave; `fate` decides what follows its end. A serving process keeps serving
  // until the caller calls drain(). Call it once all routers know. time_passed() calls drain()
  // after a while if nobody did. A starting process is terminated, a hung one killed.
  void dismiss(Process& process, Fate fate, Turn& turn);
  // Tells the process to finish its requests before `deadline`; it is killed soon after that. The
  // default deadline is drain_timeout from now. For a prefill worker, the lease is added. If it
  // drains already, the new deadline and its fate are what counts.
  void drain(Process& process, Turn& turn);
  void drain(Process& process, Instant deadline, Turn& turn);
  // It goes at once, and does not come back.
  void end_now(Process& process, Turn& turn);
  // Kills it, once. `why` goes to its last_exit.
  void kill(Process& process, const std::string& why, Turn& turn);

  // --- facts

  // An adopted process speaks for the first time: what it was told before was lost.
  void heard(Process& process, Turn& turn);
  // Acknowledges it. A process that was starting is then registered, and still unproved. Of a later
  // one only the adapters are taken.
  void registered(Process& process, const net::Registered& message, Turn& turn);
  // Records a heartbeat. One without progress for progress_timeout makes the worker hung.
  void beat(Process& process, const net::HeartbeatSent& message, Turn& turn);
  // Records a heartbeat of the engine that it becomes by its change of role, and asks it to
  // register: an earlier launcher may have heard the registration.
  void beat_as_next(Process& process, Turn& turn);
  // The answer to a look.
  void seen(Process& process, const VitalSigns& signs, Turn& turn);
  // It has changed its role without a new start. registered() follows. Requires: it was drained for
  // that.
  void changed_role(Process& process, Turn& turn);
  // A probe passed through it: it becomes ready.
  void proved(Process& process, Turn& turn);
  // Its exit was reported. Its fate decides the next state.
  void died(Process& process, const std::string& how, net::LossCause cause, Turn& turn);
  // Applies the deadlines and timeouts that have passed. Call it when due() says.
  void time_passed(Process& process, Turn& turn);

  // When time_passed() has something to do; in kBackoff, when start() is due.
  Instant due(const Process& process) const;
  // Until when a process that is not ready after start_timeout is waited for, because it was
  // starved, or a look at it is under way. `now`: no longer.
  Instant start_due(const Process& process, Instant now) const;

 private:
  static void record_beat(Process& process, Turn& turn);
  static void note_waits(Process& process, double share, Turn& turn);
  void seen_starting(Process& process, const VitalSigns& signs, Turn& turn);
  // When a look is due; kNever: none is.
  static Instant looks_due(const Process& process);
  void check_heartbeat(Process& process, Turn& turn);
  void check_progress(Process& process, Turn& turn);
  Duration progress_limit(const Process& process) const;
  // Incarnations and changes of role take numbers from one counter.
  std::string engine_id_of(const Process& process, uint64_t number) const;
  void enter(Process& process, ProcessState state, Turn& turn, Instant deadline = kNever);
  void tell_drain(Process& process, Instant deadline, Turn& turn);

  const JobTiming timing_;
  const std::string nonce_;
  uint64_t incarnations_made_ = 0;
};

}  // namespace pdjob::launcher
