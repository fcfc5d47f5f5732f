// TurnWatch: since when a thread has been at its current turn, or its current piece of work. Other
// threads read it: a thread that does not return hangs. Thread-safe.
#pragma once

#include <atomic>

#include "common/time.h"

namespace pdjob {

class TurnWatch {
 public:
  void begin(Instant now) { began_ = now; }
  void end() { began_ = kNever; }  // The thread waits for work.

  Instant began() const { return began_; }  // kNever while it waits.
  // Zero while it waits.
  Duration lasted(Instant now) const {
    const Instant began = began_;
    return began < now ? now - began : Duration::zero();
  }

 private:
  std::atomic<Instant> began_ = kNever;
};

}  // namespace pdjob
