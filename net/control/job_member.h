// JobMember: the duties of every process of a job besides its work. It registers with the launcher,
// sends heartbeats, and receives Drain. SIGTERM or SIGINT also starts a drain; a
// second signal ends the process at once. Without a launcher it handles only signals. Loop-bound.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "common/os/run_delay.h"
#include "common/result.h"
#include "common/time.h"
#include "net/control/control_channel.h"
#include "net/control/message.h"
#include "net/control/process_spec.h"
#include "net/loop/event_loop.h"
#include "net/loop/loop.h"
#include "net/loop/signals.h"

namespace pdjob::net {

class JobMember final : public ControlClient::Handler {
 public:
  class Handler {
   public:
    // Accept no more requests, finish the running ones, then call drained(). Called once.
    // on_shutdown() follows after `within`, or sooner: a later order may shorten it.
    virtual void on_drain(Duration within) = 0;
    // How many replies are still being written after drained().
    virtual size_t replies_alive() { return 0; }
    // All is done, and the launcher wants a worker of another role here. rejoin() follows, or
    // on_shutdown() is as good.
    virtual void on_next_role(const Drain::Next& /*next*/) { on_shutdown(); }
    // End now: all is done, or it takes too long.
    virtual void on_shutdown() = 0;
    virtual WorkerLoad current_load() = 0;
    // Adds what only routers know.
    virtual void add_to_heartbeat(HeartbeatSent& /*message*/) {}
    // Any other message from the launcher (Membership, LoadReported).
    virtual void on_control(const Message& message) { static_cast<void>(message); }

   protected:
    ~Handler() = default;
  };

  // `drain_timeout` bounds a drain that a signal started. The handler must outlive it.
  JobMember(Loop& loop, Handler& handler, std::string name, Duration drain_timeout);
  ~JobMember();
  JobMember(const JobMember&) = delete;
  JobMember& operator=(const JobMember&) = delete;

  // In a process of its own: with its launcher, if the spec has one, and its signals.
  static Result<std::unique_ptr<JobMember>> open(EventLoop& loop, Handler& handler,
                                                 const ProcessSpec& spec, Duration drain_timeout);
  // Before serve(). The client's handler is this object.
  void attach(std::unique_ptr<ControlClient> launcher) { launcher_ = std::move(launcher); }

  // Heartbeats tell how long threads waited for cores. open() watches those of this process.
  void watch_cores(std::function<RunDelays()> delays) { delays_ = std::move(delays); }

  // Reports that this process serves as `self`: registers repeatedly until acknowledged.
  void serve(WorkerEntry self);
  // Tells the launcher at once, and until acknowledged, that the entry of serve() has changed. Only
  // changes of WorkerEntry::adapters are taken. Requires: serve() was called.
  void change(WorkerEntry self);
  // After on_next_role(): serves as another engine of the same process.
  void rejoin(Handler& handler, WorkerEntry self);
  // No request runs any more. The process ends when its last replies have been written.
  void drained();
  // Answers a Membership.
  void membership_applied(uint64_t version);
  // Any other message to the launcher. It may be lost.
  void tell(const Message& message);
  // As by a signal.
  void stop();

  bool draining() const { return draining_; }
  const Drain::Next& next() const { return next_; }  // While draining.

 private:
  void on_message(Message message) override;
  void beat();
  void register_self();
  void add_waits(HeartbeatSent& message);
  void drain(Duration within, Drain::Next next);
  void linger();

  Loop& loop_;
  Handler* handler_;
  const std::string name_;
  const Duration drain_timeout_;
  std::unique_ptr<ControlClient> launcher_;
  std::optional<StopSignals> signals_;
  WorkerEntry self_;
  TimerId heartbeat_;
  TimerId deadline_;
  TimerId linger_;
  Drain::Next next_;  // While draining.
  uint64_t beats_ = 0;
  uint64_t registration_ = 0;  // Registered::number.
  std::function<RunDelays()> delays_;
  RunDelays delays_told_;
  Instant told_at_ = kNever;  // kNever: not yet.
  bool acknowledged_ = false;
  bool draining_ = false;
};

}  // namespace pdjob::net
