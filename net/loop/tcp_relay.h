// TcpRelay: a listening socket that passes connections on, byte for byte, to one server behind it.
// The server may be replaced at any time. New connections go to the current server, or wait until
// there is one. Backpressure and half-closing pass through from either side to the other.
// Loop-bound.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "common/limits.h"
#include "common/result.h"
#include "common/time.h"
#include "net/loop/loop.h"
#include "net/loop/socket.h"

namespace pdjob::net {

struct TcpRelayOptions {
  std::string host = "127.0.0.1";
  uint16_t port = 0;   // 0: any free port.
  int listen_fd = -1;  // A listening socket to take over.
  // How long a connection waits for a server before it is closed.
  Duration wait = std::chrono::seconds(30);
  // Beyond, the connection on which nothing has moved for longest is closed. 0: as for an
  // HttpServer.
  size_t connections_max = 0;
};

class TcpRelay final : FdHandler {
 public:
  static Result<std::unique_ptr<TcpRelay>> open(Loop& loop, const TcpRelayOptions& options);
  ~TcpRelay();
  TcpRelay(const TcpRelay&) = delete;
  TcpRelay& operator=(const TcpRelay&) = delete;

  uint16_t port() const { return listener_->port(); }
  // The server for connections from now on; nullopt: they wait. Existing connections stay.
  void pass_to(std::optional<SocketAddress> server);
  // Accepts no more connections; existing ones continue.
  void stop_accepting() { listener_.reset(); }
  size_t connections() const { return pipes_.size(); }

 private:
  class Pipe;

  TcpRelay(Loop& loop, const TcpRelayOptions& options, std::unique_ptr<Listener> listener);

  void on_ready(uint32_t epoll_events) override;
  void accept(std::unique_ptr<Stream> client);
  void connect(Pipe& pipe);
  void refused(Pipe& pipe);
  void drop(Pipe& pipe);
  bool make_room();
  void sweep();

  Loop& loop_;
  const TcpRelayOptions options_;
  std::unique_ptr<Listener> listener_;  // Null: accepts no more.
  std::optional<SocketAddress> server_;
  std::unordered_map<Pipe*, std::unique_ptr<Pipe>> pipes_;
  std::list<Pipe*> open_;     // The one on which nothing has moved for longest first.
  std::vector<Pipe*> ended_;  // Destroyed in a later turn: their own events may be running.
  TimerId sweep_timer_{};
  std::array<char, 64 * limits::kKiB> buffer_{};  // For one receive at a time.
};

}  // namespace pdjob::net
