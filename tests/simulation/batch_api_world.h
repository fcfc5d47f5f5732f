// A simulated process of the Batch API: the BatchLifecycle core, and the catalog's real file on a
// disk that loses what was not synced. Jobs of batches are doubles that take time, fail, and keep
// their rows on disk, as the simulation of one batch proves (batch_world.h). Clients create, poll
// and cancel. The process dies at any moment and at any change of its disk, or is drained, and
// begins again. Clients are never told what a crash takes back, and each batch ends as it must.
#pragma once

#include "tests/simulation/sim_main.h"

namespace pdjob::simulation {

SimRun simulate_batch_api(const SimCall& call);

}  // namespace pdjob::simulation
