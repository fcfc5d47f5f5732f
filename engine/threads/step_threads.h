// How many threads an engine computes its next step with, where engines share the cores of one
// machine. An engine always has its own threads. It borrows those of engines that have no work.
// Pure.
#pragma once

#include <cstdint>
#include <span>

#include "common/time.h"

namespace pdjob::engine {

// What an engine shows to the others.
struct EngineUse {
  uint32_t own = 0;        // Threads that are its own, whether it has work or not.
  uint32_t computing = 0;  // Threads of the step that it runs; 0: it runs none.
  Instant idle_since;      // The end of its last step; the epoch: there was none.
};

// An engine with work stands still this long, at most, between two steps. It samples tokens then.
inline constexpr Duration kBetweenSteps = std::chrono::milliseconds(2);

// Returns at least `own`, and at most `cores` or `own`, whichever is more. `others` are the other
// engines that live.
uint32_t threads_of_step(uint32_t own, std::span<const EngineUse> others, uint32_t cores,
                         Instant now);

}  // namespace pdjob::engine
