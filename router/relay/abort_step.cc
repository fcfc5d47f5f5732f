#include "router/relay/abort_step.h"

namespace pdjob::router {

AbortStep abort_step(const AbortSight& sight, Duration waited) {
  const bool is_asked = sight.at_worker && !sight.foreign;
  if (!sight.whole) {
    return is_asked ? AbortStep::kAsk : AbortStep::kWait;
  }
  if (is_asked) {
    return sight.begun || waited < kAbortPatience ? AbortStep::kAsk : AbortStep::kAnswer;
  }
  if (!sight.begun) {
    return AbortStep::kAnswer;
  }
  if (sight.at_worker) {
    return sight.stream ? AbortStep::kCut : AbortStep::kWait;
  }
  return waited < kAbortPatience ? AbortStep::kWait : AbortStep::kCut;
}

}  // namespace pdjob::router
