// Non-blocking stream sockets for links: numeric TCP addresses and abstract unix names.
// Thread-safe.
#pragma once

#include <cstdint>
#include <string>

#include "common/result.h"
#include "kvtransfer/unique_fd.h"

namespace pdjob::kvtransfer {

// `host` is a numeric address or "localhost": resolving names would block.
Result<UniqueFd> listen_tcp(const std::string& host, uint16_t port);
// `name` starts with '@' (abstract).
Result<UniqueFd> listen_unix(const std::string& name);
Result<uint16_t> bound_port(const UniqueFd& socket);

// Begun, not finished: writable when it is, connect_error() says how it went.
Result<UniqueFd> connect_tcp(const std::string& host, uint16_t port);
Result<UniqueFd> connect_unix(const std::string& name);
Status connect_error(const UniqueFd& socket);

// Invalid when there is none (any more).
UniqueFd accept_next(const UniqueFd& listener);

// A unix socket, or an address of this machine that nobody else can have.
bool peer_is_loopback(const UniqueFd& socket);
// The peer's socket is gone, whether or not all it sent has been read. Of unix sockets only.
bool peer_has_closed(const UniqueFd& socket);
// True for every TCP socket.
bool peer_has_our_uid(const UniqueFd& socket);

// No delay, and the death of the peer's machine is noticed. Buffers are left to the kernel: a fixed
// SO_RCVBUF is capped by rmem_max and would switch off its growth to several megabytes. A connected
// socket to this machine is not paced, whatever the host's congestion control (bbr paces).
void tune_tcp(const UniqueFd& socket);

}  // namespace pdjob::kvtransfer
