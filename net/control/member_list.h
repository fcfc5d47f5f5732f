// MemberList: the members of the job, built from the launcher's Membership messages. A message
// holds the whole list, or the changes since a version that the reader has confirmed. Value.
#pragma once

#include <cstdint>
#include <vector>

#include "net/control/message.h"

namespace pdjob::net {

class MemberList {
 public:
  // Returns false, and changes nothing, if `told` is older than this list or its changes start at a
  // later version. The launcher then gets no confirmation and sends the whole list.
  bool take(const Membership& told);

  uint64_t version() const { return version_; }
  // Ordered by role and name: the same for every reader, whatever messages it got.
  const std::vector<WorkerEntry>& workers() const { return workers_; }
  const std::vector<WorkerEntry>& routers() const { return routers_; }
  const std::vector<WorkerEntry>& stores() const { return stores_; }
  // The workers that clients' requests may go to.
  std::vector<WorkerEntry> serving() const;

 private:
  uint64_t version_ = 0;
  std::vector<WorkerEntry> workers_;
  std::vector<WorkerEntry> routers_;
  std::vector<WorkerEntry> stores_;
};

}  // namespace pdjob::net
