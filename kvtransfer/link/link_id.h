// How this process names its links, and how it loses them. Values.
#pragma once

#include <cstdint>

#include "common/id.h"

namespace pdjob::kvtransfer {

// One incarnation of a link inside this process. Never reused, so it stands for (peer, epoch).
using LinkId = StrongId<struct LinkTag, uint64_t>;

enum class LinkLoss {
  // The peer can no longer write our memory: it closed its socket, its process is gone, or it could
  // write only through our socket.
  kClosed,
  // We stopped listening, but the peer may still write memory that it has mapped. kClosed follows.
  kGivenUp,
};

}  // namespace pdjob::kvtransfer
