// EventLoop: one thread's epoll, timers and posted work. Everything a process waits for is a file
// descriptor here: sockets, ZeroMQ, signalfd, pidfd. Why not Asio: docs/decisions/0002.
//
// Time is read once per turn and passed on. Loop-bound, but for post() and stop(), which are
// Thread-safe.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "common/id.h"
#include "common/result.h"
#include "common/time.h"

namespace pdjob::net {

using TimerId = StrongId<struct TimerTag, uint64_t>;

// Told of readiness. Edge-triggered: read (write) until EAGAIN, or you will not be told again.
class FdHandler {
 public:
  virtual void on_ready(uint32_t epoll_events) = 0;

 protected:
  ~FdHandler() = default;
};

// Told of the end of a turn in which it asked for it.
class TurnHandler {
 public:
  virtual void on_turn_end() = 0;

 protected:
  ~TurnHandler() = default;
};

class EventLoop {
 public:
  EventLoop();
  ~EventLoop();
  EventLoop(const EventLoop&) = delete;
  EventLoop& operator=(const EventLoop&) = delete;

  // Events that come one by one, faster than this, are waited for and dealt with together: a turn
  // costs three system calls, whatever it finds. Up to kTurnsAhead turns may come faster. For loops
  // with many peers of which none hurries; 0, the default: never.
  static constexpr int kTurnsAhead = 16;
  void pace_turns(Duration interval_min);

  void run();   // Until stop().
  void stop();  // Thread-safe.
  // Runs `work` in a later turn. Thread-safe; what is posted after run() returned is dropped.
  void post(std::function<void()> work);

  // Of this turn.
  Instant now() const;

  // `work` runs once, not before `when`. Timers are coarse: up to a millisecond late.
  TimerId call_at(Instant when, std::function<void()> work);
  void cancel(TimerId timer);  // Unknown or run: nothing happens.

  // `handler` is told when all else of this turn is done, once for each time it asks; also of the
  // turn in which run() returns. Who asks while others are told is told in the next turn, which
  // does not wait. Not owned, and not called any more after forget_turn_end().
  void at_turn_end(TurnHandler& handler);
  void forget_turn_end(TurnHandler& handler);

  // The handler is not owned, and is not called any more after unwatch(), not even in the same
  // turn.
  Status watch(int fd, uint32_t epoll_events, FdHandler& handler);
  void unwatch(int fd);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace pdjob::net
