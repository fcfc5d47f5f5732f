// Writes a transfer's fault into the low half of its id, the half that workers keep. So the test
// need not tell the kv threads anything else.
#pragma once

#include <cstdint>

#include "common/random.h"
#include "tests/support/fault_transport.h"

namespace pdjob::kvtransfer {

// Requires: fewer than 2^24 ranges and 2^32 numbers.
inline TransferId transfer_with(FaultPlan plan, uint64_t number) {
  return {.high = 1,
          .low = static_cast<uint64_t>(plan.kind) << 56 | uint64_t{plan.range} << 32 | number};
}
inline FaultPlan plan_of(TransferId id) {
  return {.kind = static_cast<FaultKind>(id.low >> 56),
          .range = static_cast<uint32_t>(id.low >> 32) & 0xffffff,
          .bit = mix(id.low)};
}

}  // namespace pdjob::kvtransfer
