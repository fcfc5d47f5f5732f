// TCP sockets as the HTTP half uses them: owned descriptors, non-blocking, without Nagle's delay.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <sys/socket.h>

#include "common/result.h"

namespace pdjob::net {

// Owns a file descriptor. Value (move-only).
class Fd {
 public:
  Fd() = default;
  explicit Fd(int fd) : fd_(fd) {}
  Fd(Fd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Fd& operator=(Fd&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~Fd() { reset(); }

  int get() const { return fd_; }
  bool valid() const { return fd_ >= 0; }
  void reset();

 private:
  int fd_ = -1;
};

// Where to connect to. Value.
struct SocketAddress {
  sockaddr_storage storage{};
  socklen_t size = 0;
};

// Only for numbers ("127.0.0.1", "::1") this does not block: names may ask a server.
enum class HostForm { kNumeric, kNameOrNumeric };
Result<std::vector<SocketAddress>> resolve(const std::string& host, uint16_t port, HostForm form);

// kShared: several sockets may listen there (SO_REUSEPORT), and the kernel gives each a share of
// the connections. All of them must say so.
enum class PortUse { kAlone, kShared };
Result<Fd> listen_on(const std::string& host, uint16_t port, PortUse use = PortUse::kAlone);
// A listening socket that was handed over comes as its maker left it: non-blocking from here on,
// and not inherited any further.
Result<Fd> adopt_listener(int fd);
uint16_t local_port(int fd);
// Connected, or on its way: writable once that is decided, and then socket_error() says how.
Result<Fd> connect_to(const SocketAddress& address);
// 0, or what SO_ERROR holds.
int socket_error(int fd);
void set_no_delay(int fd);

// One non-blocking send of several pieces, at most kSendPiecesMax. Bytes sent, or -errno; never
// raises SIGPIPE.
inline constexpr size_t kSendPiecesMax = 8;
ssize_t send_pieces(int fd, std::span<const std::string_view> pieces);

// Bytes on their way to one reader. What the kernel does not take at once waits here; while
// something waits, nothing is tried until flush(). In the steady state nothing is allocated. Value.
class SendQueue {
 public:
  // Keeps `bytes` for the next send(), so that a head and the first piece of its body leave
  // together.
  void hold(std::string_view bytes) { bytes_.append(bytes); }
  // False: the connection is broken.
  [[nodiscard]] bool send(int fd, std::span<const std::string_view> pieces);
  [[nodiscard]] bool flush(int fd);
  // Gives up the memory that only a long reply needs, if nothing waits.
  void shrink();

  // The kernel's buffer is full; flush() when the socket becomes writable.
  bool blocked() const { return blocked_; }
  size_t size() const { return bytes_.size() - at_; }
  bool empty() const { return size() == 0; }

 private:
  void append(std::span<const std::string_view> pieces, size_t skipped);
  void clear();

  std::string bytes_;
  size_t at_ = 0;
  bool blocked_ = false;
};

}  // namespace pdjob::net
