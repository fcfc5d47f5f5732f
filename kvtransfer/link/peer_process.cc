#include "kvtransfer/link/peer_process.h"

#include <cstdint>
#include <string>

#include <poll.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "common/os/process_stat.h"

namespace pdjob::kvtransfer {
namespace {

// PF_EXITING of the kernel.
constexpr uint32_t kExiting = 0x4;

}  // namespace

Result<PeerProcess> PeerProcess::of(const Fd& socket) {
  ucred peer{};
  socklen_t size = sizeof peer;
  if (::getsockopt(socket.get(), SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 && peer.pid > 0) {
    // Not <sys/pidfd.h>: glibc 2.36's header does not work in C++.
    Fd pidfd(static_cast<int>(::syscall(SYS_pidfd_open, peer.pid, 0)));
    if (pidfd.valid()) {
      return PeerProcess(peer.pid, std::move(pidfd));
    }
  }
  return Error{ErrorCode::kUnsupported,
               "KV link: the peer's process cannot be seen from here (another PID namespace?)"};
}

bool PeerProcess::is_dying() const {
  pollfd gone{.fd = pidfd_.get(), .events = POLLIN, .revents = 0};
  if (!pidfd_.valid() || ::poll(&gone, 1, 0) == 1) {
    return false;
  }
  const auto stat = read_process_stat("/proc/" + std::to_string(pid_));
  return !stat || stat->state == 'Z' || (stat->flags & kExiting) != 0;
}

}  // namespace pdjob::kvtransfer
