// A simulated batch: the Ledger core, its file and its part files, on a disk that loses what was
// not synced, before a server that fails in every way. The process dies at any change of the disk,
// and is started again until the batch is complete. Then each row is in the results once, in order.
// A row that was noted is never asked again.
#pragma once

#include "tests/simulation/sim_main.h"

namespace pdjob::simulation {

SimRun simulate_batch(const SimCall& call);

}  // namespace pdjob::simulation
