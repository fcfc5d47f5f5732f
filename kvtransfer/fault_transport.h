// Any transport with one fault put into each transfer, as a broken card, driver or peer would: for
// tests, which name it in EndpointOptions::open_transport. No job file reaches it.
#pragma once

#include <cstdint>
#include <functional>

#include "common/id.h"
#include "kvtransfer/transport.h"

namespace pdjob::kvtransfer {

enum class FaultKind {
  kNone,
  // Of the sender:
  kDropAnnouncement,  // The range moves, but its ROWS is never sent.
  kDelay,             // The range moves some turns later.
  kTruncate,          // All of the range is announced and hashed, its last row does not move.
  kFlipBit,           // One bit of what moves differs from what is hashed.
  kStall,             // Half of the range moves, and then nothing ever again.
  kFail,              // Half of the range moves, and then the push fails.
  kDuplicate,         // The range moves and is announced twice.
  // Of the receiver:
  kLoseArrival,  // The range never counts as arrived.
};

struct FaultPlan {
  FaultKind kind = FaultKind::kNone;
  uint32_t range = 0;  // Which of the transfer's ranges, from 0. Beyond the last: no fault.
  uint64_t bit = 0;    // kFlipBit: which, modulo those of the range.
};

// The plan of a transfer. Called on the kv thread.
using FaultPlans = std::function<FaultPlan(TransferId)>;

TransportOpener with_faults(FaultPlans plans);

}  // namespace pdjob::kvtransfer
