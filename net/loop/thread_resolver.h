// ThreadResolver: a Resolver that runs getaddrinfo in one helper thread, which the first name
// starts. Loop-bound.
#pragma once

#include <atomic>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "common/os/channel.h"
#include "common/result.h"
#include "net/loop/event_loop.h"
#include "net/loop/resolver.h"
#include "net/loop/socket.h"

namespace pdjob::net {

class ThreadResolver final : public Resolver, FdHandler {
 public:
  explicit ThreadResolver(EventLoop& loop);
  // Waits for the current look-up, which the system's resolver bounds.
  ~ThreadResolver() override;
  ThreadResolver(const ThreadResolver&) = delete;
  ThreadResolver& operator=(const ThreadResolver&) = delete;

  void look_up(std::string host, uint16_t port, std::function<void(Addresses)> then) override;

 private:
  struct Question {
    std::string host;
    uint16_t port = 0;
    std::function<void(Addresses)> then;
  };
  struct Answer {
    std::function<void(Addresses)> then;
    Addresses addresses;
  };

  void on_ready(uint32_t epoll_events) override;
  void run();
  void answer(Answer answer);

  EventLoop& loop_;
  Fd answered_;  // eventfd
  Channel<Question> questions_;
  Channel<Answer> answers_;
  std::atomic<bool> stopping_ = false;
  std::thread thread_;
};

}  // namespace pdjob::net
