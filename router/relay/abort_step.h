// Chooses the router's next step for a request that is to end before its time. Pure.
#pragma once

#include <cstdint>

#include "common/time.h"

namespace pdjob::router {

// A worker may not have the request yet when it is asked. The router waits this long for the reply
// of a worker, or for another worker that continues a stream.
inline constexpr Duration kAbortPatience = std::chrono::milliseconds(800);

enum class AbortStep : uint8_t {
  kAsk,     // Its decode workers are asked to end it, now and again.
  kAnswer,  // The router answers it itself, without tokens.
  kCut,     // Its client has a part of the reply, and gets no more.
  kWait,    // It goes on; later there may be another step.
};

struct AbortSight {
  bool at_worker = false;  // A decode worker has it.
  bool foreign = false;    // No pdjob worker has it: nobody can be asked.
  bool begun = false;      // The client has the head of a worker's reply.
  bool stream = false;
  bool whole = true;  // False: other prompts of its batch are to go on.
};

// `waited`: since the first call that meant it, however many came since.
AbortStep abort_step(const AbortSight& sight, Duration waited);

}  // namespace pdjob::router
