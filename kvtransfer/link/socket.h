// Non-blocking stream sockets for links: numeric TCP addresses and abstract unix names.
// Thread-safe.
#pragma once

#include <cstdint>
#include <string>

#include "common/files/fd.h"
#include "common/result.h"

namespace pdjob::kvtransfer {

// `host` is a numeric address or "localhost", because resolving names would block.
Result<Fd> listen_tcp(const std::string& host, uint16_t port);
// `name` starts with '@' (abstract).
Result<Fd> listen_unix(const std::string& name);
Result<uint16_t> bound_port(const Fd& socket);

// Begins to connect. The socket is writable when that has ended; connect_error() tells the outcome.
Result<Fd> connect_tcp(const std::string& host, uint16_t port);
Result<Fd> connect_unix(const std::string& name);
Status connect_error(const Fd& socket);

// Invalid: there is no further connection.
Fd accept_next(const Fd& listener);

// True: a unix socket, or a loopback address.
bool peer_is_loopback(const Fd& socket);
// True: a TCP connection between two sockets of one machine, by its addresses: they are equal, or
// both loopback. Both ends see the same. `peer`: its numeric address, for a socket that connects;
// empty: the socket is connected.
bool stays_here(const Fd& socket, const std::string& peer = "");
// True: the peer's socket is closed, even if some of its bytes are still unread. Unix sockets only.
bool peer_has_closed(const Fd& socket);
// Always true for TCP sockets.
bool peer_has_our_uid(const Fd& socket);

// Sets TCP_NODELAY, and detects the death of the peer's machine. Buffers are left to the kernel: a
// fixed SO_RCVBUF is capped by rmem_max and would stop its growth to several megabytes. A connected
// socket to this machine is not paced, whatever the host's congestion control (bbr paces).
void tune_tcp(const Fd& socket);

}  // namespace pdjob::kvtransfer
