// Standstill: for how long a thread of a worker has not returned from its current work. The
// launcher replaces a worker that stands still for too long. Value.
#pragma once

#include "common/time.h"

namespace pdjob::worker {

struct Standstill {
  Duration lasted{};    // Of the current turn.
  Duration patience{};  // How long it may last, by the engine's pace; zero: unknown.
  Instant since{};      // The beginning of the turn.
};

// Returns what the worker reports: who stands still longest. An engine beyond its own patience
// comes first. No pace is known of a helper, so its patience is unknown: the engine's short one
// would replace a worker that moves a lot of KV.
inline Standstill worst(const Standstill& engine, Duration helper) {
  const bool beyond = engine.patience > Duration::zero() && engine.lasted >= engine.patience;
  return beyond || engine.lasted >= helper ? engine : Standstill{.lasted = helper};
}

}  // namespace pdjob::worker
