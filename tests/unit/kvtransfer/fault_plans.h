// A transfer's fault is written in its id: the kv threads need no other word of a test.
#pragma once

#include <cstdint>

#include "common/random.h"
#include "kvtransfer/fault_transport.h"

namespace pdjob::kvtransfer {

inline TransferId transfer_with(FaultPlan plan, uint64_t number) {
  return {.high = static_cast<uint64_t>(plan.kind) << 32 | plan.range, .low = number};
}
inline FaultPlan plan_of(TransferId id) {
  return {.kind = static_cast<FaultKind>(id.high >> 32),
          .range = static_cast<uint32_t>(id.high),
          .bit = mix(id.low)};
}

}  // namespace pdjob::kvtransfer
