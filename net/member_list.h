// MemberList: who is in the job, put together from what the launcher tells of it (Membership): all,
// or what has changed since a version that the reader has confirmed. Value.
#pragma once

#include <cstdint>
#include <vector>

#include "net/message.h"

namespace pdjob::net {

class MemberList {
 public:
  // False: it is older than what is known here, or says what has changed since a version that is
  // not known here. Then nothing happens, and who hears no answer tells everything.
  bool take(const Membership& told);

  uint64_t version() const { return version_; }
  // By role and name: the same at every reader, however it was told.
  const std::vector<WorkerEntry>& workers() const { return workers_; }
  const std::vector<WorkerEntry>& routers() const { return routers_; }

 private:
  uint64_t version_ = 0;
  std::vector<WorkerEntry> workers_;
  std::vector<WorkerEntry> routers_;
};

}  // namespace pdjob::net
