// Standstill: for how long a thread of a worker has not returned from its current work. The
// launcher replaces a worker that stands still for too long. Time in which the worker waited for
// cores does not count: a starved worker is slow, not sick. Value.
#pragma once

#include "common/time.h"

namespace pdjob::worker {

struct Standstill {
  Duration lasted{};    // Of the current turn.
  Duration patience{};  // How long it may last, by the engine's pace; zero: unknown.
  Duration starved{};   // Of `lasted`: the wait for cores of the thread that waited longest.

  Duration counted() const { return lasted - starved; }
};

// The same turn, while which one thread waited for cores for `longest`, and all of them for `sum`.
// A step on several threads takes longer by more than one of them waits. So nothing is known of the
// pace of an engine of which one thread waited for a quarter of the turn.
inline Standstill with_waits(Standstill still, Duration longest, Duration sum) {
  still.starved = longest < still.lasted ? longest : still.lasted;
  if (still.patience > Duration::zero()) {
    still.patience = 4 * longest >= still.lasted ? Duration::zero() : still.patience + sum;
  }
  return still;
}

// Returns what the worker reports: who stands still longest. An engine beyond its own patience
// comes first. No pace is known of a helper, so its patience is unknown: the engine's short one
// would replace a worker that moves a lot of KV.
inline Standstill worst(const Standstill& engine, const Standstill& helper) {
  const bool beyond = engine.patience > Duration::zero() && engine.counted() >= engine.patience;
  return beyond || engine.counted() >= helper.counted() ? engine : helper;
}

}  // namespace pdjob::worker
