// PeerProcess: the process at the other end of a unix socket. A process that dies closes its
// descriptors before the driver has ended the work of its GPU; it is gone only afterwards (Linux,
// kernel/exit.c: do_exit). So its GPU may still write after the end of its stream. Value
// (move-only).
#pragma once

#include <utility>

#include <sys/types.h>

#include "common/files/fd.h"
#include "common/result.h"

namespace pdjob::kvtransfer {

class PeerProcess {
 public:
  PeerProcess() = default;  // None.
  // kUnsupported: it cannot be seen from here, as across containers.
  static Result<PeerProcess> of(const Fd& socket);

  // True: its end has begun, and it is not gone yet.
  bool is_dying() const;

 private:
  PeerProcess(pid_t pid, Fd pidfd) : pid_(pid), pidfd_(std::move(pidfd)) {}

  pid_t pid_ = 0;
  Fd pidfd_;
};

}  // namespace pdjob::kvtransfer
