// JobMember: what every process of a job does besides its work: registers with the launcher and
// sends heartbeats, hears Drain and Shutdown, and takes SIGTERM or SIGINT for the same (a second
// one ends at once). Without a launcher only the signals are left. Loop-bound.
#pragma once

#include <cstdint>
#include <memory>

#include "common/result.h"
#include "common/time.h"
#include "net/control_channel.h"
#include "net/event_loop.h"
#include "net/message.h"
#include "net/process_spec.h"

namespace pdjob::net {

// Blocks SIGTERM and SIGINT (for JobMember's signalfd) and SIGPIPE in this thread and those it will
// start: call first in a process.
void block_signals();

class JobMember {
 public:
  class Handler {
   public:
    // Stop accepting, finish what is alive within the time, then call drained().
    virtual void on_drain(Duration within) = 0;
    // End now.
    virtual void on_shutdown() = 0;
    virtual WorkerLoad current_load() = 0;
    // Any other message of the launcher (Membership, LoadReported).
    virtual void on_control(const Message& message) { static_cast<void>(message); }

   protected:
    ~Handler() = default;
  };

  // `drain_timeout` bounds a drain that a signal asked for.
  static Result<std::unique_ptr<JobMember>> open(EventLoop& loop, Handler& handler,
                                                 const ProcessSpec& spec, Duration drain_timeout);
  virtual ~JobMember() = default;

  // Serving from now on as `self`: registers, again and again until acknowledged.
  virtual void serve(WorkerEntry self) = 0;
  // Answers a drain.
  virtual void drained() = 0;
  // Answers a Membership.
  virtual void membership_applied(uint64_t version) = 0;
};

}  // namespace pdjob::net
