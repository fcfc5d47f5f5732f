// JobMember: the duties of every process of a job besides its work. It registers with the launcher,
// sends heartbeats, and receives Drain and Shutdown. SIGTERM or SIGINT also starts a drain; a
// second signal ends the process at once. Without a launcher it handles only signals. Loop-bound.
#pragma once

#include <cstdint>
#include <memory>

#include "common/result.h"
#include "common/time.h"
#include "net/control/control_channel.h"
#include "net/control/message.h"
#include "net/control/process_spec.h"
#include "net/loop/event_loop.h"

namespace pdjob::net {

// Blocks SIGTERM and SIGINT (for JobMember's signalfd) in this thread and in threads that it
// starts. Also ignores SIGPIPE. Call it first in a process.
void block_signals();

class JobMember {
 public:
  class Handler {
   public:
    // Stop accepting requests, finish the running ones in time, then call drained().
    virtual void on_drain(Duration within) = 0;
    // End now.
    virtual void on_shutdown() = 0;
    virtual WorkerLoad current_load() = 0;
    // Any other message from the launcher (Membership, LoadReported).
    virtual void on_control(const Message& message) { static_cast<void>(message); }

   protected:
    ~Handler() = default;
  };

  // `drain_timeout` bounds a drain that a signal started.
  static Result<std::unique_ptr<JobMember>> open(EventLoop& loop, Handler& handler,
                                                 const ProcessSpec& spec, Duration drain_timeout);
  virtual ~JobMember() = default;

  // Reports that this process serves as `self`: registers repeatedly until acknowledged.
  virtual void serve(WorkerEntry self) = 0;
  // Answers a drain.
  virtual void drained() = 0;
  // Answers a Membership.
  virtual void membership_applied(uint64_t version) = 0;
};

}  // namespace pdjob::net
