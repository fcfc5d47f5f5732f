// TcpRelay: a listening socket whose connections are passed on, byte for byte, to one server
// behind it, which may be replaced by another at any time. New connections go to the server of the
// moment; while there is none, they wait. A side that does not read stops the other from being
// read, and a half-closed side is half-closed on the other. Loop-bound.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "common/limits.h"
#include "common/result.h"
#include "common/time.h"
#include "net/event_loop.h"
#include "net/socket.h"

namespace pdjob::net {

struct TcpRelayOptions {
  std::string host = "127.0.0.1";
  uint16_t port = 0;   // 0: any free one.
  int listen_fd = -1;  // An already listening socket, which is taken over.
  // Of a connection, for a server that takes it; then it is closed.
  Duration wait = std::chrono::seconds(30);
  size_t connections_max = limits::kHttpConnectionsMax;  // More wait in the kernel's queue.
};

class TcpRelay final : FdHandler {
 public:
  static Result<std::unique_ptr<TcpRelay>> open(EventLoop& loop, const TcpRelayOptions& options);
  ~TcpRelay();
  TcpRelay(const TcpRelay&) = delete;
  TcpRelay& operator=(const TcpRelay&) = delete;

  uint16_t port() const { return local_port(listener_.get()); }
  // Where connections go from now on; nullopt: nowhere, they wait. Those that are there stay.
  void pass_to(std::optional<SocketAddress> server);
  // No new connections; those that are there go on.
  void stop_accepting();
  size_t connections() const { return pipes_.size(); }

 private:
  class Pipe;

  TcpRelay(EventLoop& loop, const TcpRelayOptions& options, Fd listener);

  void on_ready(uint32_t epoll_events) override;
  void accept(Fd client);
  void connect(Pipe& pipe);
  void refused(Pipe& pipe);
  void drop(Pipe& pipe);
  void sweep();

  EventLoop& loop_;
  const TcpRelayOptions options_;
  Fd listener_;
  std::optional<SocketAddress> server_;
  std::unordered_map<Pipe*, std::unique_ptr<Pipe>> pipes_;
  std::vector<Pipe*> ended_;  // Destroyed in a later turn: their own events may be under way.
  TimerId sweep_timer_{};
  std::array<char, 64 * limits::kKiB> buffer_{};  // For one receive at a time.
};

}  // namespace pdjob::net
