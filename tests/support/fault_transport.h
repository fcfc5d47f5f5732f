// FaultTransport: any transport, with one fault put into each transfer, like those of a broken
// card, driver or peer. Only tests use it, through EndpointOptions::open_transport. No job file can
// select it.
#pragma once

#include <cstdint>
#include <functional>

#include "common/id.h"
#include "kvtransfer/link/transport.h"

namespace pdjob::kvtransfer {

enum class FaultKind {
  kNone,
  // Faults of the sender:
  kDropAnnouncement,  // The range moves, but its ROWS is never sent.
  kDelay,             // The range moves some turns later.
  kTruncate,          // The whole range is announced and hashed, but its last row does not move.
  kFlipBit,           // One bit of what moves differs from what is hashed.
  kStall,             // Half of the range moves, then nothing more.
  kFail,              // Half of the range moves, then the push fails.
  kDuplicate,         // The range moves and is announced twice.
  // Faults of the receiver:
  kLoseArrival,  // The range never counts as arrived.
};

struct FaultPlan {
  FaultKind kind = FaultKind::kNone;
  uint32_t range = 0;  // Number of the transfer's range, from 0. Beyond the last: no fault.
  uint64_t bit = 0;    // kFlipBit: number of the bit, modulo the bits of the range.
};

// Returns the plan of a transfer. Called on the kv thread.
using FaultPlans = std::function<FaultPlan(TransferId)>;

TransportOpener with_faults(FaultPlans plans);

}  // namespace pdjob::kvtransfer
