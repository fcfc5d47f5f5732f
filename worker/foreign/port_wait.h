// PortWait: waits until somebody listens at an address. Loop-bound.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "common/time.h"
#include "net/loop/loop.h"

namespace pdjob::worker {

class PortWait final : net::FdHandler {
 public:
  // Calls `then` once, in a later turn: whether somebody listens, at the latest at `deadline`.
  // Not called after the wait is destroyed; it may not be destroyed within the call.
  PortWait(net::Loop& loop, std::string host, uint16_t port, Instant deadline,
           std::function<void(bool listens)> then);
  ~PortWait();
  PortWait(const PortWait&) = delete;
  PortWait& operator=(const PortWait&) = delete;

 private:
  void look_up();
  void connect(const net::Resolver::Addresses& addresses);
  void on_ready(uint32_t epoll_events) override;
  void try_later();
  void end(bool listens);

  net::Loop& loop_;
  const std::string host_;
  const uint16_t port_;
  const Instant deadline_;
  std::function<void(bool)> then_;
  std::unique_ptr<net::Resolver> resolver_;
  std::unique_ptr<net::Stream> stream_;
  net::TimerId timer_;
};

}  // namespace pdjob::worker
