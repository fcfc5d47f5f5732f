// EventLoop: one thread's epoll, timers and posted work. All events of a process arrive on file
// descriptors here: sockets, ZeroMQ, signalfd, pidfd. Why not Asio: docs/decisions/0002.
//
// Time is read once per turn and passed on. Loop-bound, except post() and stop(), which are
// Thread-safe.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "common/result.h"
#include "common/time.h"
#include "net/loop/timers.h"

namespace pdjob::net {

// Called when a descriptor is ready. Edge-triggered: read (write) until EAGAIN, or you will not be
// called again.
class FdHandler {
 public:
  virtual void on_ready(uint32_t epoll_events) = 0;

 protected:
  ~FdHandler() = default;
};

// Called at the end of a turn in which it asked for it.
class TurnHandler {
 public:
  virtual void on_turn_end() = 0;

 protected:
  ~TurnHandler() = default;
};

class EventLoop final : public Timers {
 public:
  EventLoop();
  ~EventLoop();
  EventLoop(const EventLoop&) = delete;
  EventLoop& operator=(const EventLoop&) = delete;

  // Waits so that events arriving faster than this are handled together: a turn costs three system
  // calls, however little it finds. Up to kTurnsAhead turns may come faster. Use it for loops with
  // many peers that can all wait. 0, the default: no waiting.
  static constexpr int kTurnsAhead = 16;
  void pace_turns(Duration interval_min);

  void run();   // Until stop().
  void stop();  // Thread-safe.
  // Runs `work` in a later turn. Thread-safe. Work posted after run() returned is dropped.
  void post(std::function<void()> work);

  Instant now() const override;
  Instant exact_now() const override;
  TimerId call_at(Instant when, std::function<void()> work) override;
  void cancel(TimerId timer) override;

  // Calls `handler` after all other work of this turn, once for each request, and also after the
  // last turn of run(). A request made during these calls counts for the next turn, which starts at
  // once. Not owned; not called after forget_turn_end().
  void at_turn_end(TurnHandler& handler);
  void forget_turn_end(TurnHandler& handler);

  // The handler is not owned. After unwatch() it is not called, even in the same turn.
  Status watch(int fd, uint32_t epoll_events, FdHandler& handler);
  void unwatch(int fd);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace pdjob::net
