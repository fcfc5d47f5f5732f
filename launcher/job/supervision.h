// Supervision: the life of one process. It knows nothing of the others: the Job decides which
// processes exist, where they run and when they must go.
//
// A worker is hung when its engine has work and makes no progress for progress_timeout, though
// heartbeats arrive. It writes its stacks to its log, and is killed. A process that is not heard of
// is suspected at first, and killed later. Pure.
#pragma once

#include <string>

#include "launcher/job/events.h"

namespace pdjob::launcher {

class Supervision {
 public:
  // `nonce` distinguishes the engine ids of this run of the job from those of other runs.
  Supervision(const JobTiming& timing, std::string nonce);

  // --- orders

  // Starts a process that is not alive and has a place.
  void start(Process& process, Turn& turn);
  // The process must go, and `fate` follows. One that serves is told by drain(), once the routers
  // know that it leaves, or soon by time_passed().
  void dismiss(Process& process, Fate fate, Turn& turn);
  // It finishes its requests until the deadline. Without one it has stop_timeout, and a prefill
  // worker its lease.
  void drain(Process& process, Turn& turn);
  void drain(Process& process, Instant deadline, Turn& turn);
  // It goes at once, and does not come back.
  void end_now(Process& process, Turn& turn);
  // Kills it, once. `why` goes to its last_exit.
  void kill(Process& process, const std::string& why, Turn& turn);

  // --- facts

  void registered(Process& process, const net::Registered& message, Turn& turn);
  void beat(Process& process, const net::HeartbeatSent& message, Turn& turn);
  void drained(Process& process, Turn& turn);
  void proved(Process& process, Turn& turn);
  void died(Process& process, const std::string& how, net::LossCause cause, Turn& turn);
  // Handles what is due of a living process.
  void time_passed(Process& process, Turn& turn);

  // When time_passed() has something to do; in kBackoff, when start() is due.
  Instant due(const Process& process) const;

 private:
  void check_heartbeat(Process& process, Turn& turn);
  void check_progress(Process& process, Turn& turn);
  void enter(Process& process, ProcessState state, Turn& turn, Instant deadline = kNever);

  const JobTiming timing_;
  const std::string nonce_;
  uint64_t incarnations_made_ = 0;
};

}  // namespace pdjob::launcher
