// TCP sockets for HTTP: owned descriptors, non-blocking, without Nagle's delay.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <sys/socket.h>

#include "common/files/fd.h"
#include "common/result.h"
#include "net/loop/stream.h"

namespace pdjob::net {

using pdjob::Fd;

// An address to connect to. Value.
struct SocketAddress {
  sockaddr_storage storage{};
  socklen_t size = 0;
};

// Does not block for kNumeric ("127.0.0.1", "::1"); names may ask a server.
enum class HostForm { kNumeric, kNameOrNumeric };
Result<std::vector<SocketAddress>> resolve(const std::string& host, uint16_t port, HostForm form);
// "10.0.0.1", "::1"; empty: the family has no such text.
std::string numeric_text(const SocketAddress& address);

struct OwnAddress {
  std::string interface;  // "eth0"
  std::string text;       // "10.0.0.1", "fe80::1%eth0"
  SocketAddress address;
};
// The addresses of this machine's interfaces that are up; IPv4 first. Thread-safe.
Result<std::vector<OwnAddress>> own_addresses();

// kShared: several sockets listen on the port (SO_REUSEPORT), and the kernel spreads the
// connections over them. All of them must use kShared.
enum class PortUse { kAlone, kShared };
Result<Fd> listen_on(const std::string& host, uint16_t port, PortUse use = PortUse::kAlone);
// Takes over a listening socket in the state its maker left it, and makes it non-blocking and
// close-on-exec.
Result<Fd> adopt_listener(int fd);
uint16_t local_port(int fd);
// Returns a connected or connecting socket.
Result<Fd> connect_to(const SocketAddress& address);
void set_no_delay(int fd);

// Bytes for one reader. Bytes that are too many for the kernel wait here. From then on, send() only
// appends, until flush(). In the steady state it allocates nothing. Value.
class SendQueue {
 public:
  // Keeps `bytes` for the next send(), so that a head and the start of its body leave together.
  void hold(std::string_view bytes) { bytes_.append(bytes); }
  // False: the connection is broken.
  [[nodiscard]] bool send(Stream& stream, std::span<const std::string_view> pieces);
  [[nodiscard]] bool flush(Stream& stream);
  // If the queue is empty, frees memory that only a long reply needs.
  void shrink();

  // The kernel's buffer is full; call flush() when the socket becomes writable.
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
