// Signals that ask a process to stop, read on its loop.
#pragma once

#include <functional>
#include <span>

#include "net/loop/event_loop.h"
#include "net/loop/socket.h"

namespace pdjob::net {

// Blocks SIGTERM and SIGINT (for StopSignals) in this thread and in threads that it starts. Also
// ignores SIGPIPE. Call it first in a process.
void block_signals();

// Calls `then` with the number of each of its signals that comes. Loop-bound.
class StopSignals final : FdHandler {
 public:
  // Blocks them, too.
  StopSignals(EventLoop& loop, std::span<const int> signals, std::function<void(int)> then);
  ~StopSignals();
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;

 private:
  void on_ready(uint32_t epoll_events) override;

  EventLoop& loop_;
  const std::function<void(int)> then_;
  Fd fd_;
};

}  // namespace pdjob::net
