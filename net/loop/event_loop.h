// EventLoop: one thread's epoll, timers and posted work. All events of a process arrive on file
// descriptors here: sockets, ZeroMQ, signalfd, pidfd. Why not Asio: docs/decisions/0002.
//
// Time is read once per turn and passed on. Loop-bound, except post(), stop() and turn_lasted(),
// which are Thread-safe.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "common/result.h"
#include "common/time.h"
#include "net/loop/loop.h"

namespace pdjob::net {

class EventLoop final : public Loop {
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
  void post(std::function<void()> work) override;
  // How long the current turn has lasted; zero while the loop waits. Thread-safe.
  Duration turn_lasted() const;

  Instant now() const override;
  Instant exact_now() const override;
  TimerId call_at(Instant when, std::function<void()> work) override;
  void cancel(TimerId timer) override;

  void at_turn_end(TurnHandler& handler) override;
  void forget_turn_end(TurnHandler& handler) override;

  int64_t unix_seconds() const override;
  uint64_t entropy() override;
  Result<std::unique_ptr<Stream>> connect(const SocketAddress& address) override;
  Result<std::unique_ptr<Listener>> listen(const ListenOptions& options) override;
  std::unique_ptr<Resolver> make_resolver() override;
  std::unique_ptr<Helper> make_helper(const std::string& name) override;

  // The handler is not owned. After unwatch() it is not called, even in the same turn.
  Status watch(int fd, uint32_t epoll_events, FdHandler& handler);
  void unwatch(int fd);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace pdjob::net
